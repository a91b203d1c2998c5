"""What `taint`, `rebuild` and `expire` say of an instance that was left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.cli.output import Output, id_text, ref_text

if TYPE_CHECKING:
    from instep.entities.instances import Left


def show_left(out: Output, left: Left, what: str) -> None:
    """What happened to the old instance, and what happens next."""
    name = ref_text(left.ref, left.generation)
    if left.old is not None and left.changed:
        out.line(f"{name}: instance {id_text(left.old.uuid)} {what}. It is served until there is a new one.")
    elif left.old is None:
        out.line(f"{name} has not been built yet.")
    else:
        out.line(f"{name} is to be built already (made for: {left.old.reason}).")
    out.line(_next(left))


def _next(left: Left) -> str:
    if left.new is not None and left.new.worked_on_by:
        return f"Job {id_text(left.new.worked_on_by)} builds it now."
    if left.wanted:
        return "It is wanted: the next `instep run` or worker builds it."
    what = f"{ref_text(left.ref)} --generation {left.generation}" if left.generation else ref_text(left.ref)
    run = f"instep run {what}" if left.generation else "instep run"
    if left.new is not None and left.new.reason == "failure":
        run += " --retry-failures"  # Whatever is known to fail.
    return f"The next `{run}` builds it. For a worker to do it: instep want {what}"

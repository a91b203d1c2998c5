"""`instep adopt`: take over indexes of another ledger."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import EntitiesArgument, GenerationOption, JsonOption, ProjectOption, QuietOption, user_text
from instep.cli.output import Output
from instep.errors import UserError
from instep.telemetry.texts import ref_text

if TYPE_CHECKING:
    from instep.jobs.adoption import Adoption


def adopt(
    entities: EntitiesArgument = None,
    generation: GenerationOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", show_default=False)] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Take over indexes that another ledger has made.

    For a project whose ledger was lost or replaced by an older one (a backup), and for an index that moves here from
    another project. Stop the runs of that project first: its later writes are refused.

    An index of documents is compared with the source: which documents it has, in which versions. Some are read, cut and
    embedded again; if that gives the same, nothing is rebuilt, and the next run indexes only what has changed. Else,
    and for tables, the next run builds an index beside it, which is served when it is verified. It shows what it has
    found, and asks; without a terminal, and with `--json`, `--yes` is needed.

    \b
    Examples:
      instep adopt
      instep adopt Document --yes
    """
    from instep.answers.results import adoption_answer
    from instep.app import load
    from instep.jobs.adoption import verdict

    out = Output(as_json=as_json, quiet=quiet)

    def agree(found: Sequence[Adoption]) -> bool:
        for each in found:
            whose = f"ledger {each.whose[:8]}" if each.whose else "an unknown ledger"
            what = f" ({each.physical})" if each.physical else ""
            out.line(f"{ref_text(each.ref, each.generation)}: {each.alias}{what}, of {whose}: {verdict(each)}.")
        if yes:
            return True
        if as_json or not sys.stdin.isatty():
            raise UserError("adoption needs a confirmation", hint="Confirm with: instep adopt --yes")
        return typer.confirm("Make it this project's?")

    with out.progress() as progress:
        found = load(project).adopt(entities, generation=generation, agree=agree, by=user_text(), progress=progress)

    def show() -> None:
        if not found:
            out.line("Nothing to adopt: no index of these entities belongs to another ledger.")
        elif all(each.done for each in found):
            out.line("Adopted. Bring it up to date: instep run")
        else:
            out.line("Nothing was changed.")

    out.result([adoption_answer(each) for each in found], show)

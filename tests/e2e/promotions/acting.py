"""A process of its own that works on a site, and dies (kill -9) where it was told to.

`python -m tests.e2e.promotions.acting`, with a pickled `Errand` as its input; what it reports goes to its output.
"""

from __future__ import annotations

import functools
import os
import pickle
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instep.domain.refs import PartitionRef
from instep.jobs import finish
from tests.e2e.promotions.sites import Site


@dataclass(frozen=True, slots=True)
class Step:
    """Call number `nth` of any of these functions, and whether it has happened when the process dies. `within`: only
    calls that this function makes count. `reads`: not those with a text that begins so.
    """

    calls: Sequence[str]
    when: str = "before"
    nth: int = 1
    within: str = ""
    reads: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = "write" if self.within else self.calls[0].rpartition(".")[2]
        return f"{self.when} {name} {self.nth}"


@dataclass(frozen=True, slots=True)
class Serving:
    """What is said of one partition: by the ledger (`instance`, `physical`, `generation`), and by the target."""

    ref: str
    generation: str
    instance: str
    physical: str
    served: str | None
    leftovers: tuple[str, ...]
    unfinished: bool


@dataclass(frozen=True, slots=True)
class Errand:
    """What to do on a site, one thing after another: a name and its arguments."""

    site: Site
    todo: Sequence[tuple[Any, ...]]


def act(site: Site, *todo: tuple[Any, ...]) -> list[list[Serving]] | None:
    """What the process reported, or None: it was killed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.promotions.acting"],
        input=pickle.dumps(Errand(site, todo)),
        cwd=Path(__file__).parents[3],
        capture_output=True,
        check=False,
    )
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr.decode()
    found: list[list[Serving]] = pickle.loads(done.stdout)
    return found


def main() -> None:
    # Nothing that was replaced is kept for readers, so that sweeping is a step too.
    finish.SWEEP_SECONDS = 0.0
    errand: Errand = pickle.loads(sys.stdin.buffer.read())
    site, reports = errand.site, []
    for what, *arguments in errand.todo:
        match what:
            case "turn":
                site.turn(*arguments)
            case "arm":
                _arm(*arguments)
            case "run":
                number, *options = arguments
                site.run(number, **dict(options))
            case "promote":
                _promote(site, *arguments)
            case "report":
                reports.append(_report(site))
    sys.stdout.buffer.write(pickle.dumps(reports))


def _arm(step: Step) -> None:
    inside, calls = [0] if step.within else [1], [0]

    def dying(inner: Any) -> Any:
        @functools.wraps(inner)
        def last(*args: Any, **kwargs: Any) -> Any:
            counts = inside[0] > 0 and not any(isinstance(each, str) and each.startswith(step.reads) for each in args)
            calls[0] += counts
            here = counts and calls[0] == step.nth
            if here and step.when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            found = inner(*args, **kwargs)
            if here:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return last

    def around(inner: Any) -> Any:
        @functools.wraps(inner)
        def entered(*args: Any, **kwargs: Any) -> Any:
            inside[0] += 1
            try:
                return inner(*args, **kwargs)
            finally:
                inside[0] -= 1

        return entered

    for call in step.calls:
        _wrap(call, dying)
    if step.within:
        _wrap(step.within, around)


def _wrap(call: str, wrapper: Any) -> None:
    """`module:Class.method`, or `module:function`."""
    owner, _, name = call.replace(":", ":.").rpartition(".")
    place = pkgutil.resolve_name(owner.replace(":.", ":").rstrip(":"))
    setattr(place, name, wrapper(getattr(place, name)))


def _promote(site: Site, generation: str) -> None:
    import instep

    instep.load(site.root).promote(site.entity, generation)


def _report(site: Site) -> list[Serving]:
    container = site.container()
    with closing(container), closing(container.ledger()) as ledger:
        assert ledger.events.verify().differences == ()
        found = []
        for setup in container.setups([site.entity]):
            ref: PartitionRef = setup.ref
            generation = ledger.partitions.promoted(ref) or ""
            checkpoint = ledger.checkpoints.get(ref, generation)
            found.append(
                Serving(
                    str(ref),
                    generation,
                    checkpoint.instance if checkpoint else "",
                    checkpoint.physical if checkpoint else "",
                    setup.target.served(setup.alias),
                    tuple(setup.target.leftovers(setup.alias, idle_seconds=0.0)),
                    ledger.jobs.unfinished(ref, generation) is not None,
                )
            )
    return found


if __name__ == "__main__":
    # Under its own name: what it reads and writes is known by that.
    from tests.e2e.promotions.acting import main as run

    run()

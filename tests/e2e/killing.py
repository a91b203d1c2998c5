"""A rebuild that is killed (kill -9, a process of its own) at a step of its promotion, and what has to be true then."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.jobs import finish
from instep.targets.document_target import DocumentTarget
from tests.e2e import truth

#: Runs the project here, and dies at the first call of `owner.name`: before it does anything, or after. Nothing that
#: was replaced is kept for readers, so that sweeping is a step too.
_RUN = """
import functools, os, pkgutil, signal, sys
import instep
from instep.jobs import finish as promotion
owner, name, when = sys.argv[1:]
promotion.SWEEP_SECONDS = 0.0
place = pkgutil.resolve_name(owner)
inner = getattr(place, name)
@functools.wraps(inner)
def last(*args, **kwargs):
    if when == "after":
        inner(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(place, name, last)
instep.load(".").run()
"""

PARTS = "instep.ledger.parts:Parts"


@dataclass(frozen=True, slots=True)
class Step:
    """A call, and whether it has happened when the process dies."""

    owner: str
    name: str
    when: str

    def __str__(self) -> str:
        return f"{self.when} {self.name}"


def steps_of(target: str) -> list[Step]:
    """Of any target, by its class."""
    return [
        Step(target, "maintain", "after"),
        Step(target, "promote", "before"),
        Step(target, "promote", "after"),
        Step(PARTS, "finish", "after"),
        Step(target, "drop", "before"),
    ]


def long_but(sharpest: Step, steps: Sequence[Step]) -> list[Any]:
    """As parameters: all the others are run by `make soak`."""
    return [pytest.param(each, marks=() if each == sharpest else pytest.mark.long) for each in steps]


def rebuild_killed(
    root: Path,
    step: Step,
    *,
    docs: Path,
    target: DocumentTarget,
    content: Callable[[], truth.Truth],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is served is tainted and rebuilt; `content` is what readers of the alias find at any time."""
    project = instep.load(root)
    project.run()
    before = target.served("Document")
    project.taint("Document", why="a test")
    line = [sys.executable, "-c", _RUN, step.owner, step.name, step.when]
    died = subprocess.run(line, cwd=root, check=False, capture_output=True, text=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert truth.difference(truth.expected(docs), content()) == "", "readers lack something"
    monkeypatch.setattr(finish, "SWEEP_SECONDS", 0.0)
    project = instep.load(root)
    project.run()
    # The run above may have had nothing left to do; one that does something sweeps.
    (docs / "later.md").write_text("# Later\n\nSomething new.\n")
    (last,) = project.run()
    assert last.promoted
    rebuilt, first = project.history("Document")
    assert target.served("Document") == rebuilt.physical != before == first.physical
    assert target.leftovers("Document", idle_seconds=0) == []
    assert truth.difference(truth.expected(docs), content()) == ""

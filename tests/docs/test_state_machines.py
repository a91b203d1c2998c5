"""The diagrams of docs/state-machines.md are those of the code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pytest

from instep.domain.instances import INSTANCE_TRANSITIONS
from instep.domain.jobs import JOB_TRANSITIONS, SLICE_TRANSITIONS
from instep.domain.key_leases import KEY_LEASE_TRANSITIONS, KeyLeaseState
from instep.domain.wants import WANT_TRANSITIONS

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "state-machines.md").read_text()


def _name(state: KeyLeaseState | None) -> str:
    return str(state) if state is not None else "FREE"


_KEY_MOVES = {_name(state): frozenset(map(_name, after)) for state, after in KEY_LEASE_TRANSITIONS.items()}


@pytest.mark.parametrize(
    ("heading", "moves"),
    [
        ("Jobs", JOB_TRANSITIONS),
        ("Slices", SLICE_TRANSITIONS),
        ("Instances", INSTANCE_TRANSITIONS),
        ("Wants", WANT_TRANSITIONS),
        ("Keys of a queue", _KEY_MOVES),
    ],
)
def test_the_documented_moves_are_the_allowed_ones(
    heading: str, moves: Mapping[str, frozenset[str]] | Mapping[StrEnum, frozenset[StrEnum]]
) -> None:
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    drawn = set(re.findall(r"^    (\w+) --> (\w+)(?:: .+)?$", section, flags=re.MULTILINE))
    assert drawn == {(str(state), str(after)) for state, allowed in moves.items() for after in allowed}

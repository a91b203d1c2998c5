"""A document that a task does not find is looked for by the driver: gone is skipped, there is an outage of the host."""

from __future__ import annotations

from pathlib import Path

import pytest

import instep
from instep.container import Container
from instep.domain.counts import Counts
from instep.domain.identity import document_id
from instep.domain.manifest import Action, DocumentChange
from instep.domain.waves import SliceOutcome, Unseen, Wave, WaveSlice
from instep.entities.setup import EntitySetup
from instep.errors import Transient
from instep.pipeline.outcomes import decode_outcome, encode_outcome
from tests.e2e import corpus


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    corpus.write(tmp_path / "docs", range(3))
    return tmp_path / "docs"


@pytest.fixture
def setup(tmp_path: Path, docs: Path) -> EntitySetup:
    corpus.project(tmp_path, docs)
    return Container(instep.load(tmp_path).project).setups()[0]


def wave(setup: EntitySetup, docs: Path) -> Wave:
    uris = [corpus.path(docs, number).as_uri() for number in range(3)]
    changes = [DocumentChange(Action.INSERT, document_id(each), each, 10, "v", 0, "", "new") for each in uris]
    part = WaveSlice("s", 1, 0, 3, changes)
    return Wave("w", setup.ref, "instance", "index", 1, 0, (part,))


def outcome(of: Wave, *numbers: int) -> SliceOutcome:
    unseen = [Unseen(of.slices[0].changes[number].document_id, "node7") for number in numbers]
    return SliceOutcome("s", 1, Counts(read=3, written=3 - len(unseen), skipped=len(unseen)), unseen=unseen)


def test_what_is_there_for_the_driver_was_not_skipped(setup: EntitySetup, docs: Path) -> None:
    ran = wave(setup, docs)
    corpus.path(docs, 0).unlink()
    with pytest.raises(Transient, match=r"node7 does not find .*doc00001\.md"):
        setup.require_seen(ran, [outcome(ran, 0, 1)])


def test_what_is_gone_for_the_driver_too_is_skipped(setup: EntitySetup, docs: Path) -> None:
    ran = wave(setup, docs)
    corpus.path(docs, 0).unlink()
    setup.require_seen(ran, [outcome(ran, 0)])
    setup.require_seen(ran, [outcome(ran)])


def test_outcomes_of_tasks_carry_what_was_not_found(setup: EntitySetup, docs: Path) -> None:
    told = outcome(wave(setup, docs), 2)
    assert decode_outcome(encode_outcome(told), fence=1).unseen == told.unseen

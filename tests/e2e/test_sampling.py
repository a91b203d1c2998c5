"""A new index is read back in part before it is served: rows that are not what was recorded keep it from that."""

from __future__ import annotations

import pytest

from instep.domain.jobs import JobState
from instep.targets.lance.target import LanceTarget
from tests.e2e import corpus, truth
from tests.e2e.conftest import Place


def test_a_build_whose_rows_are_not_those_that_were_recorded_is_not_served(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5, 60):
        corpus.path(place.docs, number).unlink()
    place.declare(extra="engine: inline")
    place.run()
    before = truth.stored(place.index)
    maintain = LanceTarget.maintain

    def tampering(self: LanceTarget, physical: str, *, full: bool = False) -> None:
        """As many rows as there were, in another document."""
        dataset = self._place.open(physical)
        (one, *_) = dataset.to_table(columns=["document_id"])["document_id"].to_pylist()
        dataset.update({"chunk_hash": "'of another text'"}, where=f"document_id = '{one}'")
        maintain(self, physical, full=full)

    monkeypatch.setattr(LanceTarget, "maintain", tampering)
    refused = place.run(full_refresh=True)
    assert (refused.state, refused.promoted) == (JobState.FAILED, False)
    assert any("other chunks of file://" in note for note in refused.notes)
    assert truth.stored(place.index) == before
    monkeypatch.undo()
    assert place.run(full_refresh=True).promoted
    assert place.wrong() == ""

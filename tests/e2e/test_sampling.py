"""A new index is read back in part before it is served: rows that are not what was recorded keep it from that."""

from __future__ import annotations

import pytest

from instep.domain.jobs import JobState
from instep.targets.lance.target import LanceTarget
from tests.e2e import corpus, truth
from tests.e2e.conftest import Location


@pytest.mark.parametrize(("documents", "wrong"), [(5, 1), (60, 60)], ids=["of few one", "of more than are read all"])
def test_a_build_whose_rows_are_not_those_that_were_recorded_is_not_served(
    place: Location, monkeypatch: pytest.MonkeyPatch, documents: int, wrong: int
) -> None:
    for number in range(documents, 60):
        corpus.path(place.docs, number).unlink()
    place.declare(extra="engine: inline")
    place.run()
    before = truth.stored(place.index)
    maintain = LanceTarget.maintain

    def tampering(self: LanceTarget, physical: str, *, full: bool = False) -> None:
        """As many rows as there were, in other documents."""
        dataset = self._place.open(physical)
        ids = dict.fromkeys(dataset.to_table(columns=["document_id"])["document_id"].to_pylist())
        some = ", ".join(f"'{each}'" for each in [*ids][:wrong])
        dataset.update({"chunk_hash": "'of another text'"}, where=f"document_id IN ({some})")
        maintain(self, physical, full=full)

    monkeypatch.setattr(LanceTarget, "maintain", tampering)
    refused = place.run(full_refresh=True)
    assert (refused.state, refused.promoted) == (JobState.FAILED, False)
    assert any("other chunks of file://" in note for note in refused.notes)
    assert truth.stored(place.index) == before
    monkeypatch.undo()
    assert place.run(full_refresh=True).promoted
    assert place.wrong() == ""

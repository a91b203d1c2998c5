"""What tasks say of documents that are rows of one scan, taken together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from instep.domain.counts import Counts
from instep.domain.manifest import Action, DocumentChange, ManifestEntry
from instep.domain.refs import PartitionRef
from instep.domain.waves import SliceOutcome, Wave, WaveSlice
from instep.pipeline.outcomes import OUTCOME_SCHEMA, encode_outcome, outcome_batch, row_outcomes


def change(number: int) -> DocumentChange:
    return DocumentChange(Action.INSERT, f"doc_{number}", f"table://T/{number}", 1, "1", 0, "", "new")


def said(slice_id: str, *numbers: int) -> bytes:
    entries = [ManifestEntry(f"doc_{each}", f"table://T/{each}", 1, "1", "h", 1, 0) for each in numbers]
    return encode_outcome(SliceOutcome(slice_id, 0, Counts(read=len(numbers), written=len(numbers)), entries))


WAVE = Wave(
    "wave",
    PartitionRef("T"),
    "instance",
    "physical",
    1,
    0,
    (WaveSlice("a", 3, 0, 1, list(map(change, range(4)))), WaveSlice("b", 5, 1, 1, [change(9)])),
)


def outcomes(*tasks: tuple[bytes, ...]) -> pa.Table:
    batches = [outcome_batch(f"staged {at}".encode(), each) for at, each in enumerate(tasks)]
    return pa.Table.from_batches(batches, OUTCOME_SCHEMA)


def test_tasks_share_slices_and_unseen_documents_have_vanished() -> None:
    first, second = row_outcomes(outcomes((said("a", 0), said("b", 9)), (said("a", 2, 3),)), WAVE)
    assert (first.staged, second.staged) == (b"staged 0", b"staged 1")
    assert second.slices == ()
    one, other = first.slices
    assert (one.slice_id, one.fence, other.slice_id, other.fence) == ("a", 3, "b", 5)
    assert (one.counts, other.counts) == (Counts(read=4, written=3, skipped=1), Counts(read=1, written=1))
    assert [each.document_id for each in one.entries] == ["doc_0", "doc_2", "doc_3"]


def test_documents_of_a_slice_without_outcomes_have_vanished() -> None:
    (task,) = row_outcomes(outcomes(), WAVE)
    assert [each.counts for each in task.slices] == [Counts(read=4, skipped=4), Counts(read=1, skipped=1)]


def test_more_rows_than_were_asked_for_are_no_outcome() -> None:
    with pytest.raises(RuntimeError, match="share a key"):
        row_outcomes(outcomes((said("b", 9),), (said("b", 9),)), WAVE)

"""Whatever the order of events in the log: a run of OpenLineage starts once, and ends once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from instep.domain import events as e
from instep.domain.counts import Counts
from instep.domain.instances import Reason
from instep.domain.open_lineage import Dataset, OpenRuns, Translator
from instep.domain.state import Rejected
from tests.domain.book import REF, UP, Book

KINDS = [
    e.InstanceCreated,
    e.InstanceBuilding,
    e.InstanceLive,
    e.InstanceFailed,
    e.InstanceRefreshing,
    e.InstanceRefreshed,
    e.RefreshFailed,
    e.InstanceTainted,
    e.InstanceExpired,
    e.PartitionDropped,
]
#: What happens, to which partition, and whether the job that works on it says so (or one that never did).
steps = st.tuples(st.sampled_from(KINDS), st.sampled_from([REF, UP]), st.booleans())
Step = tuple[type[e.Event], str, bool]


class Nowhere:
    """Implements `Datasets`."""

    def inputs(self, entity: str) -> list[Dataset]:
        return []

    def outputs(self, entity: str, generation: str) -> list[Dataset]:
        return []


def _event(book: Book, kind: type[e.Event], ref: str, *, own: bool) -> e.Event:
    """A job that begins is a new one: none begins twice."""
    current = book.state.current(ref)
    floor = (current and current.watermark) or 0
    values: dict[str, Any] = {
        "ref": ref,
        "reason": Reason.FIRST,
        "instance": current.uuid if current else "unknown",
        "job": (own and current and current.worked_on_by) or f"job {book.now}",
        "target": floor + 1,
        "floor": floor,
        "watermark": floor + 1,
        "fingerprint": {},
        "physical": "p",
        "counts": Counts(),
        "error": "disk full",
    }
    return kind(**{name: value for name, value in values.items() if name in kind.__struct_fields__})


def _told(book: Book, tried: list[Step]) -> Iterator[dict[str, Any]]:
    """What is sent of those events that the log takes."""
    runs: OpenRuns = {}
    for kind, ref, own in tried:
        if not isinstance(book.try_to(_event(book, kind, ref, own=own)), Rejected):
            yield from Translator("project", "1", Nowhere(), book.state.instances.get).told(book.log[-1], runs)


@settings(max_examples=200)
@given(st.lists(steps, min_size=30, max_size=60))
def test_a_run_starts_once_and_has_at_most_one_end(tried: list[Step]) -> None:
    starts: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for event in _told(Book(), tried):
        run = event["run"]["runId"]
        (starts if event["eventType"] == "START" else ends)[run] += 1
        assert starts[run] == 1, tried
        assert ends[run] <= 1, tried

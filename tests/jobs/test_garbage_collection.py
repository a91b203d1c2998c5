"""What is forgotten, and what never is, on a SQLite ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from instep.domain.events import (
    Collected,
    DependencyMissed,
    InstanceTainted,
    WantCanceled,
    WantCreated,
    read,
)
from instep.domain.instances import InstanceState
from instep.jobs import garbage_collection
from instep.jobs.garbage_collection import collect
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from tests.cli import ledgers
from tests.doubles.clock import VirtualClock
from tests.jobs.test_lineage import built

DAY = 86_400_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger(tmp_path: Path, clock: VirtualClock) -> Iterator[Ledger]:
    with closing(open_ledger(f"sqlite:///{tmp_path}/ledger.db", clock=clock)) as opened:
        yield opened


def history(ledger: Ledger, builds: int, entity: str = "Document") -> list[str]:
    """Instances of a partition, each tainted but the last."""
    made = [built(ledger, entity)]
    for _ in range(builds - 1):
        ledger.events.append([InstanceTainted(instance=made[-1])])
        made.append(built(ledger, entity))
    return made


def collections(ledger: Ledger) -> list[Collected]:
    return [each.event for each in read(ledger.events.rows()) if isinstance(each.event, Collected)]


def test_old_ones_go_but_the_canonical_one_and_the_one_before_it(ledger: Ledger, clock: VirtualClock) -> None:
    made = history(ledger, 5)
    assert collect(ledger, keep=DAY).empty
    clock.sleep(DAY / 1000)
    found = collect(ledger, keep=DAY)
    assert (found.instances, found.by_ref) == (tuple(made[:3]), {"Document@global": 3})
    assert set(ledger.events.state().instances) == set(made[3:])
    assert collect(ledger, keep=DAY).empty
    assert ledger.events.verify().differences == ()


def test_a_dry_run_says_the_same_and_changes_nothing(ledger: Ledger, clock: VirtualClock) -> None:
    history(ledger, 4)
    clock.sleep(DAY / 1000)
    before = ledger.events.rows()
    looked = collect(ledger, keep=DAY, dry_run=True)
    assert ledger.events.rows() == before
    done = collect(ledger, keep=DAY)
    assert (looked.instances, looked.collected, done.instances, done.collected) == (
        done.instances,
        False,
        looked.instances,
        True,
    )


def test_collection_in_batches_leaves_no_dangling_references(
    ledger: Ledger, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collection, "BATCH", 2)
    made = history(ledger, 7)
    clock.sleep(DAY / 1000)
    collect(ledger, keep=DAY)
    assert [each.instances for each in collections(ledger)] == [
        (made[4], made[3]),
        (made[2], made[1]),
        (made[0],),
    ]


def test_wants_that_have_ended_go_too_and_open_ones_stay(ledger: Ledger, clock: VirtualClock) -> None:
    ledger.events.append([WantCreated(want=each, refs=("Document@global",)) for each in ("kept", "gone")])
    ledger.events.append([WantCanceled(want="gone")])
    clock.sleep(DAY / 1000)
    assert collect(ledger, keep=DAY).wants == ("gone",)
    assert ledger.wants.get("gone") is None
    assert ledger.wants.get("kept") is not None


def test_inputs_of_kept_instances_are_kept(ledger: Ledger, clock: VirtualClock) -> None:
    raw = history(ledger, 3, "Raw")
    built(ledger, "Document", inputs=(raw[0],))
    clock.sleep(DAY / 1000)
    assert collect(ledger, keep=DAY).empty
    assert ledger.instances.get(raw[0]) is not None


def test_an_abandoned_instance_that_a_job_builds_is_not_collected(ledger: Ledger, clock: VirtualClock) -> None:
    (part,) = ledgers.begin(ledger)
    missing = DependencyMissed(job=ledgers.JOB, instances=(part.instance,), want="derived", missing=("Raw@global",))
    ledger.events.append([missing])
    ledger.events.append([WantCanceled(want="derived")])
    left = ledger.instances.get(part.instance)
    assert left is not None
    assert left.state is InstanceState.FAILED
    # The next one, and the one after that, so that no link leads to it any more.
    ledger.events.append([InstanceTainted(instance=built(ledger, "Document"))])
    built(ledger, "Document")
    clock.sleep(DAY / 1000)
    assert part.instance not in collect(ledger, keep=DAY).instances
    ledgers.stop(ledger)
    assert part.instance not in collect(ledger, keep=DAY).instances

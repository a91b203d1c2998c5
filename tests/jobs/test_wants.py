"""Wants as use cases: made, listed, found by the beginning of their ids, canceled, on a SQLite ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.domain.wants import WantState
from instep.errors import UserError
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.requests.wants import cancel_want, find_want, make_want, want_views
from tests.cli import ledgers
from tests.doubles.clock import VirtualClock

REF = PartitionRef("Document")
TICKET = PartitionRef("Ticket")
MINUTE = 60_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger(tmp_path: Path, clock: VirtualClock) -> Iterator[Ledger]:
    with closing(open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock)) as opened:
        yield opened


def refusal(act: Callable[[], object]) -> UserError:
    with pytest.raises(UserError) as caught:
        act()
    return caught.value


def test_a_want_follows_the_job_that_builds_its_partition(ledger: Ledger, clock: VirtualClock) -> None:
    view = make_want(ledger, "w1", [REF, TICKET], by="ann")
    assert (view.state, view.current, view.startable) == (WantState.IDLE, (None, None), True)
    assert [ref for ref, _ in view.lacking] == [str(REF), str(TICKET)]
    documents, tickets = ledgers.begin(ledger, entities=("Document", "Ticket"), slices=1)
    (view,) = want_views(ledger)
    assert (view.state, view.in_time, view.startable) == (WantState.BUILDING, True, False)
    ledgers.complete(ledger, documents, 1)
    ledgers.finish(ledger, documents, JobState.COMPLETED)
    (view,) = want_views(ledger)
    assert [ref for ref, _ in view.lacking] == [str(TICKET)]
    ledgers.complete(ledger, tickets, 1)
    ledgers.finish(ledger, tickets, JobState.COMPLETED)
    assert want_views(ledger) == []
    (view,) = want_views(ledger, open_only=False)
    assert (view.state, view.lacking) == (WantState.SUCCESSFUL, ())
    assert view.instances == view.current


def test_a_job_that_began_too_early_does_not_do(ledger: Ledger, clock: VirtualClock) -> None:
    ledgers.begin(ledger, slices=1)
    began = clock.now()
    clock.sleep(60)
    early = make_want(ledger, "early", [REF], as_of=began)
    late = make_want(ledger, "late", [REF], fresh_within=MINUTE // 2)
    assert (early.state, early.in_time) == (WantState.BUILDING, True)
    assert (late.state, late.in_time) == (WantState.BUILDING, False)
    assert late.needed == clock.now() - MINUTE // 2


def test_a_want_as_of_a_later_time_is_not_started_now(ledger: Ledger, clock: VirtualClock) -> None:
    later = make_want(ledger, "later", [REF], as_of=clock.now() + 1)
    other = make_want(ledger, "other", [REF], generation="v2")
    assert (later.startable, other.startable) == (False, True)
    clock.sleep(0.001)
    assert [each.startable for each in want_views(ledger)] == [True, True]


def test_wants_of_a_partition_are_listed_newest_first(ledger: Ledger) -> None:
    for name, refs in (("w1", [REF]), ("w2", [TICKET]), ("w3", [TICKET, REF])):
        make_want(ledger, name, refs)
    assert [each.id for each in want_views(ledger, ref=REF)] == ["w3", "w1"]
    assert [each.id for each in want_views(ledger, limit=2)] == ["w3", "w2"]
    assert [each.id for each in want_views(ledger, after="w2")] == ["w1"]
    assert "'gone': it is not there" in str(refusal(lambda: want_views(ledger, after="gone")))


def test_a_canceled_want_stays_so_and_one_that_ended_otherwise_is_not_canceled(ledger: Ledger) -> None:
    make_want(ledger, "w1", [REF])
    view = cancel_want(ledger, "w1", by="ann", why="asked twice")
    assert (view.state, view.error) == (WantState.CANCELED, "canceled by ann: asked twice")
    assert cancel_want(ledger, "w1", by="bob") == view
    (part,) = ledgers.begin(ledger, slices=1)
    ledgers.complete(ledger, part, 1)
    ledgers.finish(ledger, part, JobState.COMPLETED)
    make_want(ledger, "w2", [REF])
    refused = refusal(lambda: cancel_want(ledger, "w2"))
    assert "Successful" in refused.what
    assert "instep wants" in str(refused.hint)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"generation": "no spaces"}, "not the name of a generation"),
        ({"as_of": -1}, "before 1970"),
        ({"fresh_within": -1}, "fresher than now"),
    ],
)
def test_an_invalid_want_is_refused_with_the_reason(ledger: Ledger, options: dict[str, int], words: str) -> None:
    refused = refusal(lambda: make_want(ledger, "w1", [REF], **options))  # type: ignore[arg-type]  # on purpose
    assert words in str(refused)
    assert ledger.events.rows() == []
    assert "at least one" in str(refusal(lambda: make_want(ledger, "w1", [])))


def test_a_want_is_found_by_the_beginning_of_its_id_if_that_is_plain(ledger: Ledger) -> None:
    assert "no want is known" in str(refusal(lambda: find_want(ledger, "1f0c")))
    for name in ("1f0c-aaaa", "1f0c-bbbb", "2222"):
        make_want(ledger, name, [REF])
    cancel_want(ledger, "2222")
    assert find_want(ledger, "1f0c-a").id == "1f0c-aaaa"
    assert find_want(ledger, "2222").id == "2222"
    assert "too short" in str(refusal(lambda: find_want(ledger, "22")))
    several = str(refusal(lambda: find_want(ledger, "1f0c")))
    assert "1f0c-aaaa" in several
    assert "1f0c-bbbb" in several
    assert "instep wants --all" in str(refusal(lambda: find_want(ledger, "beef")))

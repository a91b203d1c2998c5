"""Which jobs are read at a look, and that a look which fails is made up for."""

from __future__ import annotations

import pytest

from instep.answers.job_feed import JobWatch, to_read
from instep.domain.jobs import JobState
from instep.errors import Transient
from instep.ledger.jobs import JobMark
from tests.cli import ledgers
from tests.cli.ledgers import ANN, JOB
from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger

INITIALIZING, RUNNING, STOPPED, COMPLETED = (
    JobState.INITIALIZING,
    JobState.RUNNING,
    JobState.STOPPED,
    JobState.COMPLETED,
)


def marks(**states: JobState) -> list[JobMark]:
    return [JobMark(name, state, 1) for name, state in states.items()]


def test_the_first_look_sees_open_jobs_or_else_the_newest() -> None:
    ended = marks(c=COMPLETED, b=STOPPED)
    assert to_read([], [*ended, *marks(a=RUNNING)], progress=True) == ["a"]
    assert to_read([], ended, progress=True) == ["c"]
    assert to_read([], [], progress=True) == []


def test_running_jobs_are_read_for_progress_and_changed_jobs_always() -> None:
    before = marks(d=INITIALIZING, c=RUNNING, b=RUNNING, a=COMPLETED)
    now = [JobMark("d", INITIALIZING, 1), JobMark("c", RUNNING, 1), JobMark("b", RUNNING, 2), *marks(a=COMPLETED)]
    assert to_read(before, now, progress=False) == ["b"]
    assert to_read(before, now, progress=True) == ["b", "c"]


def test_a_job_that_is_not_among_the_newest_is_read_once_if_it_was_under_way() -> None:
    before = marks(c=COMPLETED, b=STOPPED, a=RUNNING)
    assert to_read(before, marks(d=INITIALIZING, c=COMPLETED), progress=False) == ["d", "a"]


def test_an_old_job_is_no_news_unless_it_was_resumed() -> None:
    """Forgetting a job lets an older one in among the newest."""
    before = marks(c=INITIALIZING, b=COMPLETED)
    assert to_read(before, marks(b=COMPLETED, a=COMPLETED), progress=False) == ["c"]
    assert to_read(before, marks(b=COMPLETED, a=RUNNING), progress=False) == ["a", "c"]
    assert to_read(before, marks(d=COMPLETED, c=INITIALIZING, b=COMPLETED), progress=False) == ["d"]


class Trouble(MemoryLedger):
    away = False

    def now(self) -> int:
        if self.away:
            raise Transient("away")
        return super().now()


def test_a_change_missed_by_one_look_is_seen_by_the_next() -> None:
    ledger = Trouble(VirtualClock())
    watch = JobWatch(lambda: ledger)
    ledgers.register(ledger, ANN)
    ledger.jobs.begin(JOB, ANN, {})
    assert [each.state for each in watch.look(progress=False).seen] == [INITIALIZING]
    ledger.jobs.discard(JOB)
    ledger.away = True
    with pytest.raises(Transient):
        watch.look(progress=False)
    ledger.away = False
    look = watch.look(progress=False)
    assert (look.seen, look.gone) == ((), (JOB,))
    assert watch.look(progress=True).gone == ()


def test_a_ledger_that_was_not_there_yet_is_looked_for_again() -> None:
    clock = VirtualClock()
    later = MemoryLedger(clock)
    found = [MemoryLedger(clock), later]
    watch = JobWatch(lambda: found.pop(0))
    assert watch.look(progress=True).seen == ()
    ledgers.begin(later)
    assert [each.id for each in watch.look(progress=False).seen] == [JOB]
    assert watch.look(progress=False).seen == ()

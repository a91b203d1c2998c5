"""Processes that append to one ledger at once, and a reader that follows the log."""

from __future__ import annotations

from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

from instep.domain.events import Event, InstanceCreated, WantCreated, read
from instep.domain.instances import Reason
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.system import SystemClock

#: A partition that all of them want. (What the contract has is not imported here: every process would have to.)
_ALL = "Document@global"
_PROCESSES = 4
_BATCHES = 40


def _batch(writer: int, number: int) -> list[Event]:
    """Wants of a partition that all want, and instances of partitions of its own: one to three of each."""
    names = [f"{writer}/{number}/{each}" for each in range(1 + (writer + number) % 3)]
    created = [InstanceCreated(ref=f"Ticket@{name}", reason=Reason.FIRST) for name in names]
    return [*created, *(WantCreated(want=name, refs=(_ALL,)) for name in names)]


def _append(url: str, writer: int) -> list[int]:
    """As a process of its own: sequences of what it appended."""
    ledger = open_ledger(url, clock=SystemClock())
    recorded = [each for number in range(_BATCHES) for each in ledger.events.append(_batch(writer, number))]
    ledger.close()
    return [each.sequence for each in recorded]


def check_appenders(url: str) -> None:
    """Readers that ask for what comes after the last that they have seen miss nothing, and see nothing twice."""
    ledger = open_ledger(url, clock=SystemClock())
    with ProcessPoolExecutor(_PROCESSES, mp_context=get_context("spawn")) as pool:
        writers = [pool.submit(_append, url, writer) for writer in range(_PROCESSES)]
        seen = _followed(ledger, writers)
    appended = [writer.result() for writer in writers]
    assert sorted(sequence for each in appended for sequence in each) == list(range(1, len(seen) + 1))
    for writer, sequences in enumerate(appended):
        assert sequences == sorted(sequences)
        expected = [event for number in range(_BATCHES) for event in _batch(writer, number)]
        assert [seen[sequence - 1] for sequence in sequences] == expected
    assert ledger.events.verify().differences == ()
    assert ledger.events.verify().skipped == {}
    ledger.close()


def _followed(ledger: Ledger, writers: list[Future[list[int]]]) -> list[object]:
    seen: list[object] = []
    while True:
        # Asked first: what they have appended when they are done is there to be read.
        ended = all(writer.done() for writer in writers)
        rows = ledger.events.rows(len(seen), 7)
        assert [row[0] for row in rows] == list(range(len(seen) + 1, len(seen) + 1 + len(rows))), "no gap"
        seen += [each.event for each in read(rows)]
        if ended and not rows:
            return seen

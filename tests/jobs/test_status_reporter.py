"""A status key says what the newest run of the partition says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from instep.answers.status import status_matrix
from instep.bus.bus import StatusEntry, StatusKeys
from instep.bus.open import open_bus
from instep.bus.status_reporter import StatusReporter
from instep.domain.refs import PartitionRef, Scope
from instep.domain.status import IndexState
from instep.errors import Conflict, InstepError, Transient, Unknown
from instep.jobs.missing_status import MissingStatus
from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger
from tests.jobs.progress_log import ProgressLog
from tests.jobs.quiet import REF as REF_OF_WORLD
from tests.jobs.quiet import Quiet

REF = PartitionRef.parse("MergeRequest@42/9970")
KEY = "status.42.9970.MergeRequest"


class Keys:
    """Real keys. `before_put` are called before the next writes."""

    def __init__(self) -> None:
        clock = VirtualClock()
        self.real = open_bus(None, MemoryLedger(clock)).status
        self.before_put: list[Any] = []

    def put(self, key: str, value: Mapping[str, Any], *, revision: int | None = None) -> int:
        if self.before_put:
            self.before_put.pop(0)()
        return self.real.put(key, value, revision=revision)

    def get(self, key: str) -> StatusEntry | None:
        return self.real.get(key)

    def delete(self, key: str, *, revision: int | None = None) -> None:
        self.real.delete(key, revision=revision)

    def under(self, prefix: str) -> list[StatusEntry]:
        return self.real.under(prefix)

    def value(self) -> Mapping[str, Any] | None:
        entry = self.real.get(KEY)
        return None if entry is None else entry.value


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def status_reporter(keys: Keys) -> StatusReporter:
    return StatusReporter(lambda: keys, ProgressLog())


def test_a_status_is_stored_without_secrets_and_unknown_values(keys: Keys, status_reporter: StatusReporter) -> None:
    error = "password=hunter2 " + "x" * 10_000
    assert status_reporter.tell(REF, IndexState.ERROR, epoch=3, rows=7, job="1f0c", watermark=None, error=error) is None
    value = keys.value()
    assert value is not None
    assert value["error"].startswith("password=*** x")
    assert len(value["error"]) == 300
    assert {name: value[name] for name in value if name != "error"} == {
        "state": "Error",
        "epoch": 3,
        "rows": 7,
        "job": "1f0c",
    }


def test_an_older_run_does_not_overwrite_a_newer_one(keys: Keys, status_reporter: StatusReporter) -> None:
    status_reporter.tell(REF, IndexState.BACKFILLING, epoch=4)
    for late in (IndexState.INDEXED, IndexState.ERROR, IndexState.INDEXING):
        assert status_reporter.tell(REF, late, epoch=3) is None
        assert keys.value() == {"state": "Backfilling", "epoch": 4}
    status_reporter.tell(REF, IndexState.INDEXED, epoch=4)
    assert keys.value() == {"state": "Indexed", "epoch": 4}


def test_the_final_status_is_not_overwritten_by_a_late_worker(keys: Keys, status_reporter: StatusReporter) -> None:
    status_reporter.tell(REF, IndexState.INDEXED, epoch=4)
    status_reporter.tell(REF, IndexState.BACKFILLING, epoch=4)
    assert keys.value() == {"state": "Indexed", "epoch": 4}
    status_reporter.tell(REF, IndexState.INDEXING, epoch=5)
    assert keys.value() == {"state": "Indexing", "epoch": 5}


def test_a_status_changed_between_read_and_write_is_read_again(keys: Keys, status_reporter: StatusReporter) -> None:
    keys.before_put = [lambda: keys.real.put(KEY, {"state": "Indexed", "epoch": 9})]
    assert status_reporter.tell(REF, IndexState.INDEXED, epoch=8, rows=1) is None
    assert keys.value() == {"state": "Indexed", "epoch": 9}
    keys.before_put = [lambda: keys.real.delete(KEY)]
    assert status_reporter.tell(REF, IndexState.INDEXED, epoch=10) is None
    assert keys.value() == {"state": "Indexed", "epoch": 10}


@pytest.mark.parametrize("told", [{"state": "Indexed"}, {"epoch": "9"}, {"epoch": None}])
def test_a_status_without_an_epoch_is_overwritten(
    keys: Keys, status_reporter: StatusReporter, told: Mapping[str, Any]
) -> None:
    keys.real.put(KEY, told)
    status_reporter.tell(REF, IndexState.INDEXING, epoch=1)
    assert keys.value() == {"state": "Indexing", "epoch": 1}


@pytest.mark.parametrize("error", [Transient("token=hunter2 away"), Unknown("lost"), Conflict("moved")])
def test_a_failure_to_write_is_a_note(keys: Keys, error: InstepError) -> None:
    def fail() -> None:
        raise error

    keys.before_put, progress = [fail] * 5, ProgressLog()
    note = StatusReporter(lambda: keys, progress).tell(REF, IndexState.INDEXED, epoch=1)
    assert note is not None
    assert note.startswith(f"{KEY} could not be written: ")
    assert "hunter2" not in note
    assert progress.lines == [(str(REF), note)]
    assert keys.value() is None


def test_a_status_that_is_too_large_gives_a_note(status_reporter: StatusReporter) -> None:
    note = status_reporter.tell(REF, IndexState.INDEXED, epoch=1, rows="x" * 20_000)
    assert note is not None
    assert "bytes" in note


# The matrix of what was told.


def test_a_failed_read_is_unknown() -> None:
    def away() -> StatusKeys:
        raise Transient("the bus does not answer")

    scopes = [Scope.parse("42"), Scope.parse("7")]
    matrix = status_matrix(away, ["Issue"], scopes, only=True)
    assert matrix.state is IndexState.UNKNOWN
    assert [each.state for each in matrix.namespaces] == [IndexState.UNKNOWN] * 2
    assert matrix.notes == ("the status keys cannot be read: the bus does not answer",)


def test_only_namespaces_with_keys_of_these_entities_are_known(keys: Keys) -> None:
    for key in ("status.42.Issue", "status.42.9.Other", "status.7", "status.global.User", "status.Issue", "status.x.y"):
        keys.real.put(key, {"state": "Indexed"})
    matrix = status_matrix(lambda: keys, ["Issue", "Note"], [], only=False)
    assert [str(each.namespace) for each in matrix.namespaces] == ["42", "7"]
    assert matrix.entities["Issue"] is IndexState.INDEXED
    assert matrix.entities["Note"] is IndexState.NOT_INDEXED


def test_of_one_namespace_its_own_keys_are_read_and_no_others(keys: Keys) -> None:
    asked: list[str] = []

    class Watched(Keys):
        def under(self, prefix: str) -> list[StatusEntry]:
            asked.append(prefix)
            return keys.real.under(prefix)

    keys.real.put("status.42.Issue", {"state": "Indexed"})
    keys.real.put("status.42.9970.Issue", {"state": "Error"})
    matrix = status_matrix(Watched, ["Issue"], [Scope.parse("42")], only=True)
    assert [(str(each.namespace), each.entities) for each in matrix.namespaces] == [
        ("42", {"Issue": IndexState.INDEXED})
    ]
    assert asked == ["status.42"]


def test_keys_of_the_old_format_stand_for_entities_without_their_own(keys: Keys) -> None:
    keys.real.put("status.42.9970", {"state": "Indexing"})
    keys.real.put(KEY, {"state": "Indexed"})
    matrix = status_matrix(lambda: keys, ["MergeRequest", "Issue"], [REF.scope], only=True)
    (seen,) = matrix.namespaces
    assert seen.entities == {"MergeRequest": IndexState.INDEXED, "Issue": IndexState.INDEXING}
    assert matrix.notes == ("status.42.9970 has the old format: it stands for 1 of its entities",)


def test_a_key_that_could_not_be_written_is_written_by_the_next_worker() -> None:
    """By what the ledger says: the worker that could not has ended."""
    world = Quiet()

    def away() -> None:
        raise Transient("the bus does not answer")

    world.before(world._status, "put", away, times=99)
    world.run_once()
    assert world._status.under("status") == []
    del world._status.put
    missing = MissingStatus([REF_OF_WORLD.entity], world.context(world.process("worker", [])))
    assert missing.write()
    (part,) = world.parts()
    assert (world.reported_status["state"], world.reported_status["epoch"]) == ("Indexed", part.part.epoch)
    (entry,) = world._status.under("status")
    assert missing.write()
    assert world._status.under("status") == [entry], "once"
    missing.stop()
    assert not missing.write()


def test_a_key_that_this_worker_could_not_write_is_written_later() -> None:
    world = Quiet()
    world.run_once()
    context = world.context(world.process("worker", []))
    missing = MissingStatus([REF_OF_WORLD.entity], context)
    missing.write()
    world.edit()
    world.run_once()
    (entry,) = world._status.under("status")
    world._status.put(entry.key, {"state": "Indexing", "epoch": 1})
    missing.write()
    assert world.reported_status["state"] == "Indexing", "it is looked at once"
    context.status_reporter.unsent.add(REF_OF_WORLD)
    missing.write()
    assert (world.reported_status["state"], context.status_reporter.unsent) == ("Indexed", set())

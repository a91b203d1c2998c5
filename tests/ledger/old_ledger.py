"""A ledger as the first schema had it, with something in every table; for tests of migrations."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection, Engine, MetaData

from instep.domain.events import InstanceBuilding, InstanceCreated, InstanceImported, InstanceRefreshing
from instep.domain.instances import InstanceState, Reason
from instep.domain.jobs import JobState, SliceState
from instep.domain.key_leases import KeyLease
from instep.domain.manifest import encode_changes
from instep.domain.refs import event_instance_id, instance_id
from instep.domain.wants import Retries, WantState
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.schema import upgrade
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    canonical_of,
    change,
    end,
    job_of,
    logged,
    outcome,
    register,
    status_of,
)

#: What is served, and what is being built of the other partition.
_SERVED = str(instance_id(REF, 1))
_BEGUN = str(instance_id(OTHER, 2))
_IDLE = {"attempts": 0, "fence": 0}


HELD = (-(2**63), -12, 0, 7, 100, 2**63 - 1)


def make_held_numbers(engine: Engine) -> None:
    """Keys of queues that consumers have in hand, more than a migration takes at once, when keys were numbers."""
    upgrade(engine, "0019")
    tables = MetaData()
    tables.reflect(engine, only=["queue_holds"])
    holds = tables.tables["queue_holds"]
    one = {"fence": 3, "holder": None, "due_at": None, "attempts": 12, "since": START, "error": "no luck"}
    rows = [{"queue": "salts", "key": key, **one} for key in HELD]
    rows += [{"queue": "many", "key": key, **one, "holder": "ann", "due_at": START} for key in range(2_500)]
    with engine.execution_options(write=True).begin() as connection:
        connection.execute(holds.insert(), rows)


def check_held(ledger: Ledger) -> None:
    """They are the same numbers, in their order."""
    parked = ledger.key_leases.parked("salts")
    assert list(parked) == list(HELD)
    assert set(parked.values()) == {KeyLease(3, None, None, 12, START, "no luck")}
    assert list(ledger.key_leases.held_by("many", "ann")) == list(range(2_500))
    assert ledger.key_leases.unpark("salts", [7]) == {7}


def make_old_ledger(engine: Engine) -> None:
    """A job that was completed, one that failed, and one that was running when its worker was upgraded."""
    upgrade(engine, "0001")
    tables = MetaData()
    tables.reflect(engine)
    with engine.execution_options(write=True).begin() as connection:
        _insert(tables, connection)


def _insert(tables: MetaData, connection: Connection) -> None:
    def insert(table: str, **values: object) -> None:
        connection.execute(tables.tables[table].insert().values(**values))

    def insert_job(number: int, state: str, **values: object) -> None:
        at = START + 10 * number
        insert("jobs", id=f"job-{number}", state=state, worker_id="old", created_at=at, started_at=at + 1, **values)
        for position, ref in enumerate((REF, OTHER)):
            insert(
                "job_parts",
                job_id=f"job-{number}",
                ref=str(ref),
                position=position,
                instance=_BEGUN if (number, ref) == (3, OTHER) else str(instance_id(ref, 1)),
                sequence=2 if (number, ref) == (3, OTHER) else 1,
                physical=f"index-{position}",
                fingerprint='{"chunker": "c1"}',
                buckets=16,
                epoch=number,
                base=7,
                fresh=number == 1 or ref == OTHER,
            )

    def insert_slice(job: int, index: int, state: str, work: int, priority: int = 40, **values: object) -> None:
        slice_id = f"job-{job}.0.{index}"
        insert(
            "slices",
            id=slice_id,
            job_id=f"job-{job}",
            ref=str(REF),
            number=index,
            bucket=3,
            units=2,
            work=work,
            priority=priority,
            state=state,
            **(_IDLE | values),
        )
        payload = encode_changes([change(2 * index), change(2 * index + 1)])
        insert("slice_work", slice_id=slice_id, lower_bound="", upper_bound="", payload=payload)

    insert("workers", id="old", host="here", pid=1, started_at=START, heartbeat_at=START + 30)
    insert_job(1, "COMPLETED_WITH_ERRORS", finished_at=START + 15)
    insert_slice(1, 0, "COMPLETED", 5, worker_id="old", fence=1, read=2, written=1, failed=1)
    insert_job(2, "FAILED", finished_at=START + 25, error="no luck")
    insert_job(3, "RUNNING")
    insert_slice(3, 0, "PENDING", 5)
    insert_slice(3, 1, "PENDING", 9)
    insert_slice(3, 2, "PENDING", 5, priority=60)
    insert_slice(3, 3, "PROCESSING", 7, fence=1, worker_id="old", claimed_at=START + 31)
    insert_slice(3, 4, "COMPLETED", 7, fence=1, worker_id="old", read=2, written=2)
    lease = {"worker_id": "old", "host": "here", "pid": 1, "since": START, "expires_at": START + 10**9}
    insert("leases", ref=str(REF), epoch=3, **lease)
    insert("sequences", ref=str(REF), last=1)
    insert("sequences", ref=str(OTHER), last=2)
    insert(
        "checkpoints",
        ref=str(REF),
        instance=_SERVED,
        sequence=1,
        physical="index-0",
        fingerprint="{}",
        buckets=16,
        watermark=START + 10,
        job_id="job-1",
        updated_at=START + 15,
    )
    document = change(1)
    for instance in (_SERVED, _BEGUN):
        insert(
            "documents",
            instance=instance,
            document_id=document.document_id,
            uri=document.uri,
            size=101,
            version="v1",
            document_hash="hash",
            chunks=3,
            bucket=0,
        )
    insert(
        "failures",
        ref=str(REF),
        document_id="doc_0000",
        uri="file:///docs/0.md",
        version="v1",
        stage="parse",
        reason="no text in it",
        attempts=1,
        job_id="job-1",
        failed_at=START + 14,
    )


def check_migrated(ledger: Ledger) -> None:
    """Nothing is lost, and the job that was running can be finished by a new worker."""
    done, failed = job_of(ledger, "job-1"), job_of(ledger, "job-2")
    assert (done.configuration, done.updated_at) == ({}, START + 15)
    assert {part.state for part in done.parts} == {JobState.COMPLETED_WITH_ERRORS}
    assert {(part.state, part.finished_at, part.error) for part in failed.parts} == {
        (JobState.FAILED, START + 25, "no luck")
    }
    assert [each.id for each in ledger.workers.all()] == ["old"]
    assert list(ledger.documents.entries(_SERVED)) == [change(1).uri]
    _check_instances(ledger)
    assert ledger.failures.count(REF) == 1
    assert (
        {each.generation for each in ledger.checkpoints.of_partition(REF)}
        == {each.generation for each in ledger.failures.newest()}
        == {""}
    )
    assert (ledger.partitions.promoted(REF), ledger.partitions.promoted(OTHER)) == ("", None)

    unfinished = ledger.jobs.unfinished(REF)
    assert unfinished is not None
    assert (unfinished.id, unfinished.state, unfinished.updated_at) == ("job-3", JobState.RUNNING, START + 31)
    register(ledger, "new")
    lease = ledger.leases.acquire(REF, "job-3", "new")
    assert isinstance(lease, Lease)
    assert lease.epoch == 4
    part = ledger.parts.adopt(lease)
    claims = ledger.slices.claim("job-3", REF, "new", work=1_000, limit=10)
    assert [each.index for each in claims] == [2, 1, 3, 0], "by priority, then the largest, then by number"
    assert [each.fence for each in claims] == [1, 1, 2, 1]
    ledger.slices.complete(part, "new", list(map(outcome, claims)), job_id="job-3")
    assert end(ledger, part, "job-3", "new") is JobState.RUNNING, "the other part is open"
    assert status_of(ledger, REF, "job-3").slices == {SliceState.COMPLETED: 5}
    served = canonical_of(ledger)
    assert (served.uuid, served.state, served.watermark) == (_SERVED, InstanceState.LIVE, START + 30)
    _finish_other(ledger)
    assert ledger.events.verify().differences == ()


def _check_instances(ledger: Ledger) -> None:
    """What is served has kept its UUID, and the job that runs works on instances that are known."""
    built = event_instance_id(str(OTHER), "", 2)
    target = START + 30
    assert logged(ledger) == [
        InstanceImported(ref=str(REF), build=1, job="job-1", watermark=START + 10, physical="index-0", fingerprint={}),
        InstanceCreated(ref=str(OTHER), reason=Reason.FIRST),
        InstanceBuilding(instance=built, job="job-3", target=target, fingerprint={"chunker": "c1"}),
        InstanceRefreshing(instance=_SERVED, job="job-3", floor=START + 10, target=target),
    ]
    assert [row[1] - START for row in ledger.events.rows()] == [15, 30, 30, 30]
    assert (canonical_of(ledger).uuid, canonical_of(ledger).state) == (_SERVED, InstanceState.REFRESHING)
    assert (canonical_of(ledger, OTHER).uuid, canonical_of(ledger, OTHER).state) == (built, InstanceState.BUILDING)
    assert status_of(ledger, OTHER, "job-3").part.instance == built
    assert list(ledger.documents.entries(built)) == [change(1).uri]
    assert list(ledger.documents.entries(_BEGUN)) == []
    assert ledger.events.verify().differences == ()
    naming = ledger.naming()
    assert (str(UUID(naming.ledger)), naming.since) == (naming.ledger, 4), "those that there were keep their names"
    assert ledger.partitions.all_indexes() == {"index-0", "index-1"}


def _finish_other(ledger: Ledger) -> None:
    lease = ledger.leases.acquire(OTHER, "job-3", "new")
    assert isinstance(lease, Lease)
    part = ledger.parts.adopt(lease)
    assert (part.revision, part.inputs) == ("", ())
    assert end(ledger, part, "job-3", "new") is JobState.COMPLETED
    assert canonical_of(ledger, OTHER).state is InstanceState.LIVE
    checkpoint = ledger.checkpoints.get(OTHER)
    assert checkpoint is not None
    assert checkpoint.instance == part.instance == canonical_of(ledger, OTHER).uuid


def make_old_requests(engine: Engine) -> None:
    """Requests as handlers had them: one waits, one is in work beside a newer one, one is done, one was given up."""
    upgrade(engine, "0013")
    tables = MetaData()
    tables.reflect(engine)
    none = {"evicted_watermark": None, "evicted_attempts": None, "evicted_reason": None, "evicted_at": None}
    slots: list[dict[str, object]] = [
        {"ref": "Issue@42/9970", "waiting": START * 1_000, "working": None, "trace": "00-trace", **none},
        {"ref": "Issue@7", "waiting": START * 1_000 + 5_000, "working": START * 1_000, "trace": None, **none},
        {"ref": "Note@7", "waiting": None, "working": None, "trace": None, **none},
        {
            "ref": "User@global",
            "waiting": None,
            "working": None,
            "trace": None,
            "evicted_watermark": START * 1_000,
            "evicted_attempts": 5,
            "evicted_reason": "no column",
            "evicted_at": START,
        },
    ]
    with engine.execution_options(write=True).begin() as connection:
        for slot in slots:
            rest = {"consumer": "x", "kind": "namespace", "seen": 1, "done": 0, "attempts": 1, "is_last": False}
            row = {**slot, **rest, "fence": 1, "due_at": None, "working_group": None}
            connection.execute(tables.tables["bus_slots"].insert().values(**row))
        connection.execute(
            tables.tables["bus_status"].insert().values(key="status.7", value="{}", revision=3, updated_at=1)
        )


def check_requests(ledger: Ledger) -> None:
    """Open requests are wants, and the one that was given up is a dead letter."""
    found = {each.refs[0]: each for each in ledger.wants.newest()}
    assert found.keys() == {"Issue@42/9970", "Issue@7", "User@global"}
    waiting, newest, letter = found["Issue@42/9970"], found["Issue@7"], found["User@global"]
    assert (waiting.state, waiting.as_of, waiting.traceparent) == (WantState.IDLE, START, "00-trace")
    assert (newest.state, newest.as_of, newest.retries) == (WantState.IDLE, START + 5, Retries())
    assert (letter.state, letter.error, letter.given_up) == (WantState.FAILED, "no column", True)
    assert [str(ref) for ref in ledger.wants.open_refs()] == ["Issue@42/9970", "Issue@7"]
    assert ledger.status_keys.get("status.7") == ("status.7", "{}", 3)
    verified = ledger.events.verify()
    assert (verified.differences, verified.skipped) == ((), {})

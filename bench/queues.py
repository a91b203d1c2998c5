"""The sides of the benchmark of claims: our ledger, a bare loop, and two known queues, each with all it promises.

Every side stores the same number of jobs with the same payload, hands them to worker processes, and says at the end
whether each was completed exactly once. Nothing is done with a job: what is measured is claim and completion.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg

from instep.domain.counts import Counts
from instep.domain.identity import document_id
from instep.domain.instances import Reason
from instep.domain.jobs import JobPart, JobState, SlicePlan
from instep.domain.manifest import Action, DocumentChange, encode_changes
from instep.domain.refs import PartitionRef
from instep.domain.waves import SliceOutcome
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.ledger.parts import NewPart
from instep.system import SystemClock

#: Documents of the smallest slice that is planned (1,000 rows), and so of the smallest payload: 3.5 KB.
DOCUMENTS = 87

REF = PartitionRef("Document")


def _change(number: int) -> DocumentChange:
    uri = f"file:///corpus/{number:06d}.md"
    return DocumentChange(Action.INSERT, document_id(uri), uri, 6_800 + number, f"17900000{number}", 0, "", "new")


#: What a worker needs to know to begin: the same for all sides.
PAYLOAD = encode_changes([_change(number) for number in range(DOCUMENTS)])


@dataclass(frozen=True, slots=True)
class Drained:
    """What one worker did: how many jobs, and when (`time.monotonic`, the same in all processes) it began and
    had done its last one.
    """

    jobs: int
    began: float
    ended: float


class Queue(Protocol):
    """Instances go to other processes: they have no state. A `url` is a database of the queue's own."""

    name: str

    def install(self, url: str) -> None:
        """The schema, in an empty database."""

    def fill(self, url: str, jobs: int) -> None: ...

    def drain(self, url: str, batch: int, worker: int, ready: Callable[[], object]) -> Drained:
        """Work until nothing is left. Calls `ready` when connected; it returns when all are."""

    def check(self, url: str, jobs: int) -> None:
        """Raises unless all of them, filled in once or several times, were completed exactly once."""


class Ours:
    """The ledger, used as a worker does: claim with the hint of rank, complete in one transaction."""

    name = "instep"

    def install(self, url: str) -> None:
        _ledger(url).close()

    def fill(self, url: str, jobs: int) -> None:
        ledger = _ledger(url)
        fill_ledger(ledger, f"job{ledger.now()}", jobs)
        ledger.close()

    def drain(self, url: str, batch: int, worker: int, ready: Callable[[], object]) -> Drained:
        ledger = _ledger(url)
        part = ledger.open_parts.on([REF])[0]
        name = f"{part.job_id}-worker{worker}"
        ledger.workers.register(name, kind="worker", host="host", pid=worker)
        ledger.jobs.join(part.job_id, name)
        ready()
        began = ended = time.monotonic()
        done = after = 0
        while claims := ledger.slices.claim(part.job_id, REF, name, work=2**40, limit=batch, after=after):
            after = claims[-1].rank
            outcomes = [SliceOutcome(each.slice_id, each.fence, Counts(read=1, written=1)) for each in claims]
            ledger.slices.complete(part.part, name, outcomes, job_id=part.job_id)
            done += len(claims)
            ended = time.monotonic()
        ledger.workers.retire(name)
        ledger.close()
        return Drained(done, began, ended)

    def check(self, url: str, jobs: int) -> None:
        states = "SELECT state, fence, count(*) FROM slices GROUP BY state, fence"
        _demand(_all(url, states), [("COMPLETED", 1, jobs)])
        _demand(_all(url, "SELECT sum(written), sum(attempts) FROM slices"), [(jobs, 0)])


def fill_ledger(ledger: Ledger, job_id: str, slices: int, *, worker: str = "planner") -> JobPart:
    """A job of so many slices, running, after those before it have ended; its planner takes part in it, so that the
    lease is kept.
    """
    worker = f"{worker}-{job_id}"
    ledger.workers.register(worker, kind="run", host="host", pid=1)
    ledger.jobs.begin(job_id, worker, {})
    for other in ledger.open_parts.on([REF]):
        ledger.parts.finish(other.job_id, other.part, JobState.FAILED, worker_id=worker)
    lease = ledger.leases.acquire(REF, job_id, worker)
    assert isinstance(lease, Lease), lease
    instance = ledger.instances.new(lease, Reason.FIRST)
    part = JobPart(REF, instance, "physical", {}, 1, lease.epoch, 0, fresh=True)
    plans = [SlicePlan(number, 0, "", "", 1, 1, 40, PAYLOAD) for number in range(slices)]
    ledger.parts.plan(job_id, [NewPart(part, plans)])
    ledger.jobs.start(job_id)
    return part


class Bare:
    """What is left without fences, leases, order and counts: two statements on one table."""

    name = "bare loop"

    def install(self, url: str) -> None:
        _all(
            url,
            "CREATE TABLE jobs (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state TEXT NOT NULL,"
            " payload BYTEA NOT NULL)",
        )
        _all(url, "CREATE INDEX jobs_todo ON jobs (id) WHERE state = 'todo'")

    def fill(self, url: str, jobs: int) -> None:
        fill = "INSERT INTO jobs (state, payload) SELECT 'todo', %s FROM generate_series(1, %s)"
        _all(url, fill, [PAYLOAD, jobs])

    def drain(self, url: str, batch: int, worker: int, ready: Callable[[], object]) -> Drained:
        claim = (
            "UPDATE jobs SET state = 'doing' WHERE id IN"
            " (SELECT id FROM jobs WHERE state = 'todo' ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)"
            " RETURNING id, payload"
        )
        complete = "UPDATE jobs SET state = 'done' WHERE id = ANY(%s)"
        done = 0
        with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            ready()
            began = ended = time.monotonic()
            while rows := cursor.execute(claim, [batch]).fetchall():
                cursor.execute(complete, [[row[0] for row in rows]])
                done += len(rows)
                ended = time.monotonic()
        return Drained(done, began, ended)

    def check(self, url: str, jobs: int) -> None:
        _demand(_all(url, "SELECT state, count(*) FROM jobs GROUP BY state"), [("done", jobs)])


class Pgqueuer:
    """On asyncpg and uvloop, its quickest; in its own benchmark's mode. Batch: jobs of one dequeue."""

    name = "pgqueuer"

    def install(self, url: str) -> None:
        async def install() -> None:
            queries, connection = await self._connect(url)
            await queries.install()
            await connection.close()

        asyncio.run(install())

    def fill(self, url: str, jobs: int) -> None:
        async def fill() -> None:
            queries, connection = await self._connect(url)
            for start in range(0, jobs, 10_000):
                some = min(10_000, jobs - start)
                await queries.enqueue(["job"] * some, [PAYLOAD] * some, [0] * some)
            await connection.close()

        asyncio.run(fill())

    def drain(self, url: str, batch: int, worker: int, ready: Callable[[], object]) -> Drained:
        import uvloop
        from pgqueuer import PgQueuer
        from pgqueuer.models import Job
        from pgqueuer.types import QueueExecutionMode

        done, began, ended = 0, 0.0, 0.0

        async def drain() -> None:
            nonlocal began
            queries, _ = await self._connect(url)
            queue = PgQueuer(queries.driver, queries=queries)

            @queue.entrypoint("job")
            async def run(_: Job) -> None:
                nonlocal done, ended
                done += 1
                ended = time.monotonic()

            ready()
            began = time.monotonic()
            await queue.run(batch_size=batch, mode=QueueExecutionMode.drain)

        uvloop.run(drain())
        return Drained(done, began, max(began, ended))

    def check(self, url: str, jobs: int) -> None:
        _demand(_all(url, "SELECT count(*) FROM pgqueuer"), [(0,)])
        done = "SELECT count(*), count(DISTINCT job_id) FROM pgqueuer_log WHERE status = 'successful'"
        _demand(_all(url, done), [(jobs, jobs)])

    @staticmethod
    async def _connect(url: str) -> tuple[Any, Any]:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        connection = await asyncpg.connect(url)
        return Queries(AsyncpgDriver(connection)), connection


class Procrastinate:
    """It fetches jobs one by one. Batch: how many it runs at once."""

    name = "procrastinate"

    def install(self, url: str) -> None:
        with self._app(url).open() as app:
            app.schema_manager.apply_schema()

    def fill(self, url: str, jobs: int) -> None:
        app = self._app(url)
        with app.open():
            for start in range(0, jobs, 10_000):
                some = min(10_000, jobs - start)
                app.tasks["job"].batch_defer(*[{"payload": PAYLOAD.hex()}] * some)

    def drain(self, url: str, batch: int, worker: int, ready: Callable[[], object]) -> Drained:
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        done, began, ended = 0, 0.0, 0.0

        def one_more() -> None:
            nonlocal done, ended
            done += 1
            ended = time.monotonic()

        async def drain() -> None:
            nonlocal began
            app = self._app(url, one_more)
            async with app.open_async():
                ready()
                began = time.monotonic()
                await app.run_worker_async(wait=False, concurrency=batch, name=f"worker{worker}")

        asyncio.run(drain())
        return Drained(done, began, max(began, ended))

    def check(self, url: str, jobs: int) -> None:
        _demand(_all(url, "SELECT status, count(*) FROM procrastinate_jobs GROUP BY status"), [("succeeded", jobs)])
        started = "SELECT count(*) FROM procrastinate_events WHERE type = 'started'"
        _demand(_all(url, started), [(jobs,)])

    @staticmethod
    def _app(url: str, called: Callable[[], None] = lambda: None) -> Any:
        from procrastinate import App, PsycopgConnector

        app = App(connector=PsycopgConnector(conninfo=url))

        @app.task(name="job")
        async def job(payload: str) -> None:
            called()

        return app


def _ledger(url: str) -> Ledger:
    ledger = open_ledger(url, clock=SystemClock())
    assert ledger is not None
    return ledger


def _all(url: str, statement: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(statement.encode(), values)
        return done.fetchall() if done.description else []


def _demand(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> None:
    if found != wanted:
        raise RuntimeError(f"not every job was completed exactly once: {found} where {wanted} was expected")

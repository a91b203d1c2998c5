"""A project with something of everything that the page shows: indexed for real as far as that is quick; what takes
servers or hours is written into the ledger through its port, as workers do.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import instep
from instep.bus.open import open_bus
from instep.domain.clock import Clock
from instep.domain.counts import Counts
from instep.domain.instances import Reason
from instep.domain.jobs import Claim, JobPart, JobState, SlicePlan
from instep.domain.manifest import Action, DocumentChange, decode_changes, encode_changes
from instep.domain.refs import PartitionRef, Scope
from instep.domain.status import IndexState, status_key
from instep.domain.waves import SKIPPED, Failure, SliceOutcome
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.ledger.parts import NewPart
from instep.system import SystemClock

PROJECT: Final = """\
name: handbook
namespaces: [{namespaces}]
targets:
  index: {{type: lance, uri: .instep/index}}
entities:
  Guide:
    source: {{type: files, path: "{guides}", include: ["**/*.md", "**/*.pdf"]}}
    embed: {{type: hashing, dimensions: 64}}
    columns: {columns}
  Answer:
    source: {{type: files, path: "{guides}", include: ["**/*.md"]}}
    embed: {{type: hashing, dimensions: 64}}
    columns: {columns}
    depends_on: [Guide]
  Letter:
    source: {{type: files, path: "{letters}"}}
    embed: {{type: hashing, dimensions: 64}}
{tables}queues:
  summaries:
    on: sqlite:///shop.db
    key: id
    keys: {{from: 1, below: 1000000}}
    source: {{table: items, event_time: at}}
    covered_by: [{{table: done}}]
"""
TABLE: Final = """\
  {name}:
    source: {{type: spark, path: {path}}}
    key: id
    scope: path
    watermark: at
"""
#: The kind of a file, and the letter under which it stands.
COLUMNS: Final = '{kind: {type: string, from: "file:extension"}, shelf: {type: string, from: "path:([a-z])[^/]*$"}}'
#: What a test indexes; hits and marks are known.
GUIDES: Final = {
    "bread": "# Bread\n\nKnead the dough until it is smooth, and let it rise for two hours.\n",
    "soup": "# Soup\n\nLeeks & potatoes: <b>never</b> boil the cream.\n",
    "tea": "# Tea\n\nPour the water as soon as it boils.\n",
}
#: Tables that are indexed by namespaces.
TABLES: Final = (
    "MergeRequest", "Issue", "Note", "Pipeline", "Vulnerability", "Milestone", "Label", "Release", "Epic", "Snippet",
)  # fmt: skip
#: What nothing can be read from, so that it fails until it is mended.
BROKEN: Final = "menu.pdf"
#: A job without workers but the holder of a `RunningJob`.
JOB: Final = "1f0c2a9e-6d1b-4c53-9a37-5f2d8e7b4c10"
WORKERS: Final = ("a3b1c9d2-0000-4000-8000-000000000001", "5e7d20f4-0000-4000-8000-000000000002")
#: Documents in a slice of that job.
UNITS: Final = 40


def make(folder: Path, guides: Path, *, namespaces: int = 3, tables: Sequence[str] = TABLES[:2]) -> None:
    """Declare the project in `folder`, index `guides`, and tell how far its namespaces are."""
    scopes = _scopes(namespaces)
    (folder / "letters").mkdir()
    declared = "".join(TABLE.format(name=each, path=each.lower()) for each in tables)
    names = ", ".join(str(each).strip("/") for each in scopes)
    text = PROJECT.format(guides=guides, letters=folder / "letters", namespaces=names, tables=declared, columns=COLUMNS)
    (folder / "instep.yaml").write_text(text, encoding="utf-8")
    _fill_queue(folder / "shop.db")
    project = instep.load(folder)
    project.run(["Guide", "Answer"])
    with opened(folder) as ledger, closing(open_bus(None, ledger)) as bus:
        chance = random.Random(9970)
        for scope in scopes:
            for name in tables:
                state = chance.choices(list(IndexState), weights=[60, 6, 2, 8, 4, 0])[0]
                if state is not IndexState.NOT_INDEXED:
                    bus.status.put(status_key(PartitionRef(name, scope)), {"state": str(state)})


def make_small(folder: Path) -> None:
    """With a few guides of its own, one of which fails."""
    guides = folder / "guides"
    guides.mkdir()
    for name, text in GUIDES.items():
        (guides / f"{name}.md").write_text(text, encoding="utf-8")
    (guides / BROKEN).write_bytes(b"%PDF-1.4 nothing")
    make(folder, guides)


def _scopes(number: int) -> list[Scope]:
    return [Scope.parse(f"{42 + place % 3}/{9970 + 37 * place}") for place in range(number)]


def _fill_queue(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, at TEXT)")
        database.execute("CREATE TABLE done (id INTEGER PRIMARY KEY)")
        database.executemany("INSERT INTO items VALUES (?, '2026-01-01')", [(each,) for each in range(1, 500)])
        database.executemany("INSERT INTO done VALUES (?)", [(each,) for each in range(1, 440)])


@contextmanager
def opened(folder: Path, clock: Clock | None = None) -> Iterator[Ledger]:
    with closing(open_ledger(instep.load(folder).project.ledger_url, clock=clock or SystemClock())) as ledger:
        yield ledger


class RunningJob:
    """A job on `Letter` in the ledger, moved by hand."""

    def __init__(self, ledger: Ledger, *, slices: int, job_id: str = JOB) -> None:
        self.ledger, self.job_id = ledger, job_id
        for place, worker in enumerate(WORKERS):
            ledger.workers.register(worker, kind="worker", host=f"indexer-{place + 1}", pid=4711 + place)
        ledger.jobs.begin(job_id, WORKERS[0], {"entities": ["Letter@global"], "full_refresh": True})
        lease = ledger.leases.acquire(PartitionRef("Letter"), job_id, WORKERS[0])
        assert isinstance(lease, Lease)
        reason = Reason.FIRST if ledger.instances.canonical(lease.ref) is None else Reason.REBUILD
        instance = ledger.instances.new(lease, reason)
        self.part = JobPart(
            lease.ref, instance, f"Letter__{instance[:8]}", {"chunker": "c1"}, 16, lease.epoch, ledger.now(), True
        )
        ledger.parts.plan(job_id, [NewPart(self.part, [_planned(each) for each in range(slices)])])
        ledger.jobs.start(job_id)
        ledger.jobs.join(job_id, WORKERS[1])

    def claim(self, slices: int, *, worker: str = WORKERS[0]) -> list[Claim]:
        return self.ledger.slices.claim(self.job_id, self.part.ref, worker, work=10 * slices, limit=slices)

    def complete(
        self,
        claims: Sequence[Claim],
        *,
        failed: int = 0,
        reason: str = "no text in it",
        skipped: bool = False,
        worker: str = WORKERS[0],
    ) -> None:
        """`failed`: so many documents of each slice are, for this reason; `skipped`: they are left out on purpose."""
        outcomes = [_outcome(each, failed, reason, skipped=skipped) for each in claims]
        self.ledger.slices.complete(self.part, worker, outcomes, job_id=self.job_id)

    def end(self) -> None:
        """All slices are completed."""
        assert self.ledger.parts.begin_finish(self.job_id, self.part.ref, WORKERS[0])
        state = JobState.COMPLETED_WITH_ERRORS
        self.ledger.parts.finish(self.job_id, self.part, state, worker_id=WORKERS[0], promote=True)


def _planned(index: int) -> SlicePlan:
    changes = [
        DocumentChange(Action.INSERT, f"doc_{index:05}_{n}", f"file:///{index}/<i>{n}</i>.md", 100, "v1", 3, "", "new")
        for n in range(UNITS)
    ]
    return SlicePlan(index, index % 16, "", "", UNITS, 10, 40, encode_changes(changes))


def _outcome(claimed: Claim, failed: int, reason: str, *, skipped: bool) -> SliceOutcome:
    bad = decode_changes(claimed.payload)[:failed]
    counts = Counts(read=UNITS, written=UNITS - failed, rows_written=3 * (UNITS - failed))
    return SliceOutcome(
        claimed.slice_id,
        claimed.fence,
        replace(counts, skipped=failed) if skipped else replace(counts, failed=failed),
        failures=[
            Failure(each.document_id, each.uri, each.version, SKIPPED if skipped else "parse", reason) for each in bad
        ],
    )

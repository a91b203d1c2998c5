"""Where promotions are killed: each kind of target, what it does within a promotion, and how readers read it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.promotions.acting import Step
from tests.e2e.promotions.readers import Chdb, Lance, Milvus, Postgres, Qdrant, Reader
from tests.e2e.promotions.sites import DocumentSite, Site, TableSite
from tests.servers.postgres import running_postgres

_PARTS = "instep.ledger.parts:Parts"
_COMMANDS = ("instep.clickhouse.embedded:EmbeddedSession.command",)
_STATEMENTS = ("instep.postgres.connection:Session.run", "instep.postgres.connection:Session._commit")
_SMALL_FILES = ("instep.targets.lance.location:Location.create", "instep.targets.lance.location:Location.remove")
#: What PostgreSQL or Milvus is asked for, and changes nothing: to be killed before it is to be killed after a write.
_READS = ("SELECT ", "CREATE TABLE IF NOT", "CREATE INDEX IF NOT", "query", "list_", "describe_", "get_", "has_")
_EDGE = "instep.targets.qdrant.edge:EdgeCollections"

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Kind:
    """A kind of target, by its class. `writes` is what it does one after another when it promotes, and when it drops
    unless `drops` says so. Where a promotion is no single step, `atomic` is false. `sharpest` is where to die if there
    is one death only. `like` has the same code of aliases.
    """

    name: str
    target: str
    writes: tuple[str, ...]
    sharpest: Step
    drops: tuple[str, ...] = ()
    tables: bool = False
    atomic: bool = True
    like: str | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def around(self) -> list[Step]:
        """Before and after what a promotion consists of."""
        return [
            Step((f"{self.target}.maintain",), "after"),
            Step((f"{self.target}.promote",), "before"),
            Step((f"{self.target}.promote",), "after"),
            Step((f"{_PARTS}.finish",), "after"),
            Step((f"{self.target}.drop",), "before"),
        ]

    def within(self, method: str) -> Iterator[Step]:
        """Before each write of it: without end."""
        calls = (self.drops if method == "drop" else ()) or self.writes
        return (Step(calls, "before", nth, f"{self.target}.{method}", _READS) for nth in itertools.count(1))

    def site(self, root: Path, target: str, *, shared: bool = False) -> Site:
        return TableSite(root, target, shared) if self.tables else DocumentSite(root, target)

    @contextmanager
    def place(self, folder: Path) -> Iterator[tuple[str, Reader]]:
        """What is declared, and how it is read. `folder` is for what runs in a process."""
        if "postgres" in self.target:
            server, schema = running_postgres(), f"promotions_{next(_numbers)}"
            uri = server.url("postgres")
            yield f"type: postgres, uri: '{uri}', schema: '{schema}'", Postgres(uri, schema)
            server.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE', database="postgres")
            return
        index = folder / "index"
        match self.name:
            case "qdrant":
                yield f"type: qdrant, uri: '{index}'", Qdrant(index)
            case "milvus":
                yield f"type: milvus, uri: '{index}.db'", Milvus(folder / "index.db")
            case "clickhouse":
                yield f"type: clickhouse, uri: '{index}'", Chdb(index)
            case _:
                yield f"type: lance, uri: '{index}'", Lance(index, "NOT _deleted" if self.tables else None)


KINDS = [
    Kind(
        "postgres",
        "instep.targets.postgres.documents:PostgresDocuments",
        _STATEMENTS,
        Step(("instep.targets.postgres.aliases:_show",), "after"),
    ),
    Kind(
        "qdrant",
        "instep.targets.qdrant.target:QdrantTarget",
        (f"{_EDGE}.upsert", f"{_EDGE}.sync", "pathlib:Path.symlink_to", "os:replace"),
        Step((f"{_EDGE}.point",), "before"),
        drops=(f"{_EDGE}.delete", "pathlib:Path.rename", "shutil:rmtree", "os:rmdir"),
    ),
    Kind(
        "milvus",
        "instep.targets.milvus.target:MilvusTarget",
        ("instep.targets.milvus.location:Location.call",),
        Step(("instep.targets.milvus.journal:_show",), "before"),
    ),
    Kind(
        "clickhouse",
        "instep.targets.clickhouse.target:ClickHouseTarget",
        _COMMANDS,
        # It is recorded, and one view has moved.
        Step(_COMMANDS, "before", 3, "instep.targets.clickhouse.target:ClickHouseTarget.promote"),
        tables=True,
        atomic=False,
    ),
    Kind(
        "tables in postgres",
        "instep.targets.postgres.target:PostgresTarget",
        _STATEMENTS,
        Step(("instep.targets.postgres.aliases:_show",), "after"),
        tables=True,
        like="postgres",
    ),
    Kind(
        "tables in lance",
        "instep.targets.lance.tables:LanceTableTarget",
        _SMALL_FILES,
        Step(_SMALL_FILES[:1], "after"),
        drops=("instep.targets.lance.target:LanceTarget.remove",),
        tables=True,
        like="lance",
    ),
]

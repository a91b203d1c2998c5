"""Tables of tickets that keep their versions, made and changed by the libraries of Delta and Iceberg themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog

import instep
from instep.jobs.entity_result import EntityResult
from tests.e2e.truth import served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.app import Instep

_FED = {"delta.enableChangeDataFeed": "true"}


def rows(tickets: Mapping[int, str], **more: str) -> pa.Table:
    """Tickets by id; `more` columns have one value."""
    columns = {"id": pa.array(list(tickets), pa.int64()), "body": pa.array(list(tickets.values()), pa.string())}
    return pa.table(columns | {name: pa.array([value] * len(tickets)) for name, value in more.items()})


@dataclass
class Lake(ABC):
    """A project of one entity, its table, and the tickets that are in it. `declared` is added to the entity."""

    root: Path
    declared: str = ""
    document: str = "key: id, text: body"
    spark: SparkSession | None = None
    tickets: dict[int, str] = field(default_factory=dict)

    @abstractmethod
    def source(self) -> str:
        """The source as it is declared."""

    @abstractmethod
    def create(self, table: pa.Table) -> None: ...

    @abstractmethod
    def append(self, table: pa.Table) -> None: ...

    @abstractmethod
    def merge(self, table: pa.Table) -> None:
        """Rows that are there by their ids are changed, the others are added."""

    @abstractmethod
    def remove(self, *ids: int) -> None: ...

    @abstractmethod
    def overwrite(self, table: pa.Table) -> None: ...

    @abstractmethod
    def expire(self) -> None:
        """Let go of all versions but the last."""

    @property
    @abstractmethod
    def table(self) -> Any:
        """The table as its library has it."""

    @property
    @abstractmethod
    def version(self) -> int: ...

    def declare(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "instep.yaml").write_text(f"""
name: desk
targets: {{index: {{type: lance, uri: index}}}}
entities:
  Ticket:
    source: {self.source()}
    document: {{{self.document}}}
    deletes: {{floor: 20}}
    buckets: 4
    {self.declared}
""")

    def fill(self, count: int) -> None:
        self.declare()
        self.tickets = {number: f"Ticket {number} is about a lamp." for number in range(count)}
        self.create(rows(self.tickets))

    def change(self, **bodies: str) -> None:
        """By ids, such as `t3`: in one commit."""
        changed = {int(name.removeprefix("t")): body for name, body in bodies.items()}
        self.tickets |= changed
        self.merge(rows(changed))

    def delete(self, *ids: int) -> None:
        for each in ids:
            del self.tickets[each]
        self.remove(*ids)

    def app(self) -> Instep:
        return instep.Instep(instep.load(self.root).project, spark=self.spark)

    def run(self, **options: Any) -> EntityResult:
        (result,) = self.app().run(**options)
        return result

    def wrong(self) -> str:
        """What differs between the index and the truth; empty when nothing does."""
        have = Counter(self._stored())
        want = Counter({(f"table://Ticket/{number}", body): 1 for number, body in self.tickets.items()})
        lost, extra = list((want - have).elements()), list((have - want).elements())
        return f"missing {lost[:3]}, too many {extra[:3]}" if lost or extra else ""

    def _stored(self) -> list[tuple[str, str]]:
        table = lance.dataset(served(self.root / "index", "Ticket")).to_table(columns=["source_uri", "text"])
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def checkpoint(self) -> int | None:
        (found,) = [each for each in instep.load(self.root).checkpoints() if each.state == "complete"]
        return found.version

    def failures(self) -> dict[str, str]:
        return {each.uri: each.reason for each in instep.load(self.root).failures()}


@dataclass
class DeltaLake(Lake):
    #: Properties of the table.
    properties: Mapping[str, str] = field(default_factory=lambda: _FED)

    @property
    def path(self) -> str:
        return str(self.root / "tickets")

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.path)

    def source(self) -> str:
        return "{type: delta, path: tickets}"

    def create(self, table: pa.Table) -> None:
        write_deltalake(self.path, table, configuration=dict(self.properties))

    def append(self, table: pa.Table) -> None:
        write_deltalake(self.path, table, mode="append", schema_mode="merge")

    def merge(self, table: pa.Table) -> None:
        made = self.table.merge(table, "t.id = s.id", source_alias="s", target_alias="t")
        made.when_matched_update_all().when_not_matched_insert_all().execute()

    def remove(self, *ids: int) -> None:
        self.table.delete(f"id IN ({', '.join(map(str, ids))})")

    def overwrite(self, table: pa.Table) -> None:
        write_deltalake(self.path, table, mode="overwrite")

    def expire(self) -> None:
        # Vacuuming leaves what the feed has written; with its log a version is gone.
        table = self.table
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        table.create_checkpoint()
        for each in Path(self.path, "_delta_log").glob("*.json"):
            if int(each.stem) < table.version():
                each.unlink()

    @property
    def version(self) -> int:
        return self.table.version()


@dataclass
class IcebergLake(Lake):
    def source(self) -> str:
        where = {"uri": f"sqlite:///{self.root}/catalog.db", "warehouse": f"file://{self.root}/warehouse"}
        return f"{{type: iceberg, table: desk.tickets, catalog: {where}}}"

    def _catalog(self) -> Catalog:
        return load_catalog(
            "default", uri=f"sqlite:///{self.root}/catalog.db", warehouse=f"file://{self.root}/warehouse"
        )

    @property
    def table(self) -> Any:
        return self._catalog().load_table("desk.tickets")

    def create(self, table: pa.Table) -> None:
        catalog = self._catalog()
        catalog.create_namespace("desk")
        catalog.create_table("desk.tickets", table.schema).append(table)

    def append(self, table: pa.Table) -> None:
        with self.table.update_schema() as update:
            update.union_by_name(table.schema)
        self.table.append(table)

    def merge(self, table: pa.Table) -> None:
        self.table.upsert(table, join_cols=["id"])

    def remove(self, *ids: int) -> None:
        self.table.delete(f"id IN ({', '.join(map(str, ids))})" if len(ids) > 1 else f"id == {ids[0]}")

    def overwrite(self, table: pa.Table) -> None:
        self.table.overwrite(table)

    def expire(self) -> None:
        table = self.table
        old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != self.version]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    @property
    def version(self) -> int:
        return int(self.table.current_snapshot().snapshot_id)

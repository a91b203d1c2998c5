"""The same tables of tickets as nodes of a graph: an entity of a table that is followed from version to version."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import lance

from tests.e2e.truth import served

from .tables import DeltaLake, IcebergLake, Lake


@dataclass
class Nodes(Lake):
    #: Lines of the entity, beside `source` and `key`.
    entity: list[str] = field(default_factory=list)
    engine: str = "auto"

    def declare(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        more = "".join(f"    {each}\n" for each in self.entity)
        (self.root / "instep.yaml").write_text(f"""
name: desk
engine: {self.engine}
targets: {{index: {{type: lance, uri: index}}}}
entities:
  Ticket:
    source: {self.source()}
    key: id
    deletes: {{floor: 20}}
{more}""")

    def _stored(self) -> list[tuple[str, str]]:
        table = lance.dataset(served(self.root / "index", "Ticket")).to_table(filter="NOT _deleted")
        found = zip(table["id"].to_pylist(), table["body"].to_pylist(), strict=True)
        return [(f"table://Ticket/{number}", body) for number, body in found]

    def edges(self, kind: str) -> Counter[tuple[int, int]]:
        """Edges that a reader finds, by their two ends."""
        folder = next(self.root.glob(f"index/*__{kind}.lance"))
        table = lance.dataset(folder).to_table(filter="NOT _deleted")
        return Counter(zip(table["from_id"].to_pylist(), table["to_id"].to_pylist(), strict=True))


@dataclass
class DeltaNodes(Nodes, DeltaLake):
    pass


@dataclass
class IcebergNodes(Nodes, IcebergLake):
    pass

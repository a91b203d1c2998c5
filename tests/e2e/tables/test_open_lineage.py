"""A table with edges as OpenLineage gets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import instep
from tests.sources.tables.sessions import session
from tests.telemetry.receiver import check

from .shop import NAMESPACES, Shop

pytestmark = pytest.mark.spark


def test_rows_and_edges_of_a_table_are_datasets_with_their_columns_and_numbers(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop", "type: lance, uri: index")
    shop.declare()
    shop.edit("name: shop\n", "name: shop\nlineage: {openlineage: lineage.ndjson}\n")
    shop.fill(tickets=60)
    namespace = NAMESPACES[0].strip("/")
    (result,) = instep.Instep(instep.load(shop.root).project, spark=session()).run([f"Ticket@{namespace}"])
    started, ended = (json.loads(line) for line in (shop.root / "lineage.ndjson").read_text().splitlines())
    for each in (started, ended):
        check(each)
    assert (started["eventType"], ended["eventType"]) == ("START", "COMPLETE")
    assert ended["job"]["name"] == f"Ticket@{namespace}"
    (source,), (rows, edges) = ended["inputs"], ended["outputs"]
    assert _fields(source) >= {("id", "int64"), ("title", "string"), ("author", "int64")}
    assert _fields(rows) >= {("id", "int64"), ("title", "string")}
    assert [Path(each["name"]).name for each in (rows, edges)] == ["Ticket", "Ticket__OPENED"]
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == result.counts.read
    assert rows["outputFacets"]["outputStatistics"]["rowCount"] == result.counts.written > 0
    assert edges["outputFacets"] == {}, "its rows are not counted apart"


def _fields(dataset: dict[str, Any]) -> set[tuple[str, str]]:
    return {(each["name"], each["type"]) for each in dataset["facets"]["schema"]["fields"]}

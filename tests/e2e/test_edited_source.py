"""A project file that names another table, or other columns of it: versions of rows are those of the table that was
read, so nothing of it is taken for the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import instep
from instep.entities.plan_request import Kind
from tests.e2e.truth import served

PLAIN = "source: {type: spark, path: a}, document: {key: id, text: body, version: v}"


def declare(root: Path, entity: str) -> None:
    (root / "instep.yaml").write_text(f"""
name: desk
engine: inline
targets: {{index: {{type: lance, uri: index}}}}
entities:
  Ticket: {{{entity}, deletes: {{share: 1}}}}
""")


def write(root: Path, **changed: list[Any]) -> None:
    """The tables `a` and `b`, whose rows have the same keys and versions and other texts; `lake` has those of `a`."""
    columns = {"id": [1, 2, 3], "other": [3, 1, 2], "v": [1, 1, 1], "w": [1, 1, 1], "gone": [False, False, True]}
    for name in ("a", "b"):
        (root / name).mkdir(exist_ok=True)
        table = pa.table(columns | {"body": [f"{name}{number}" for number in (1, 2, 3)]} | changed)
        pq.write_table(table, root / name / "rows.parquet")
        if name == "a" and not changed:
            write_deltalake(root / "lake", table)


def documents(root: Path) -> set[tuple[str, str]]:
    table = lance.dataset(served(root / "index", "Ticket")).to_table()
    return set(zip(table["source_uri"].to_pylist(), table["text"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PLAIN, PLAIN.replace("path: a", "path: b")),
        (PLAIN, PLAIN.replace("key: id", "key: other")),
        (PLAIN, PLAIN.replace("type: spark, path: a", "type: delta, path: lake").replace("key: id", "key: other")),
        (
            "source: {type: delta, path: lake}, document: {key: id, text: body}",
            "source: {type: delta, path: lake}, document: {key: [id, other], text: body}",
        ),
        (
            "source: {type: delta, path: lake}, document: {key: id, text: body}",
            "source: {type: delta, path: lake}, document: {key: id, text: body, deleted: gone}",
        ),
        (
            PLAIN.replace("v}", "v, with: {notes: {source: {type: spark, path: a}, key: id, text: body, version: v}}}"),
            PLAIN.replace("v}", "v, with: {notes: {source: {type: spark, path: b}, key: id, text: body, version: v}}}"),
        ),
        (
            PLAIN.replace("v}", "v, with: {notes: {source: {type: spark, path: a}, key: id, text: body, version: v}}}"),
            PLAIN.replace(
                "v}", "v, with: {notes: {source: {type: spark, path: a}, key: other, text: body, version: v}}}"
            ),
        ),
    ],
)
def test_rows_of_another_table_or_key_are_read_though_their_versions_are_the_same(
    tmp_path: Path, before: str, after: str
) -> None:
    edited, fresh = tmp_path / "edited", tmp_path / "fresh"
    for root in (edited, fresh):
        root.mkdir()
        write(root)
    declare(edited, before)
    instep.load(edited).run()
    declare(edited, after)
    instep.load(edited).run(allow_deletes=True)
    declare(fresh, after)
    instep.load(fresh).run()
    assert documents(edited) == documents(fresh)
    (again,) = instep.load(edited).run()
    assert again.kind is Kind.NOTHING


def test_a_version_of_another_column_is_another_version(tmp_path: Path) -> None:
    write(tmp_path)
    declare(tmp_path, PLAIN)
    instep.load(tmp_path).run()
    write(tmp_path, v=[2, 1, 1], body=["new", "a2", "a3"])
    declare(tmp_path, PLAIN.replace("version: v", "version: w"))
    (plan,) = instep.load(tmp_path).plan()
    assert "document changed" in " ".join(plan.why)
    instep.load(tmp_path).run()
    assert ("table://Ticket/1", "new") in documents(tmp_path)


def test_a_plan_says_that_the_table_is_another_one(tmp_path: Path) -> None:
    write(tmp_path)
    declare(tmp_path, PLAIN)
    instep.load(tmp_path).run()
    declare(tmp_path, PLAIN.replace("path: a", "path: b"))
    (plan,) = instep.load(tmp_path).plan()
    assert "source changed" in " ".join(plan.why)

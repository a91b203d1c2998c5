"""Rows of Parquet whose texts are bytes that are not UTF-8: each is a failure of its own, and no neighbour's."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import instep
from instep.arrow.values import typed
from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.project import Project

COUNT = 20


def texts(values: list[bytes]) -> Any:
    """Texts of any bytes, as Spark's `cast(binary as string)` writes them."""
    ends = np.array([0, *accumulate(map(len, values))], np.int32)
    buffers: list[Any] = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def opened(root: Path, odd: dict[str, int], **more: Any) -> instep.Instep:
    """`odd` says of which row a column has such bytes."""

    def column(name: str, value: str) -> Any:
        end = [b"\xff" if odd.get(name) == at else b"" for at in range(COUNT)]
        return texts([value.format(at).encode() + end[at] for at in range(COUNT)])

    readers = column("acl", "alice")
    table = pa.table(
        {
            "id": column("id", "k{}"),
            "body": column("body", "printer {}"),
            "team": column("team", "ops"),
            "version": column("version", "v{}"),
            "acl": pa.ListArray.from_arrays(pa.array(range(COUNT + 1), pa.int32()), readers),
        }
    )
    (root / "data").mkdir()
    pq.write_table(table, root / "data" / "a.parquet", row_group_size=5)
    entity = {
        "source": {"type": "spark", "path": "data"},
        "document": {"key": "id", "text": "body"},
        "columns": {"team": "string", "acl": "string[]"},
        "target": "index",
        **more,
    }
    targets = {"index": {"type": "lance", "uri": "index"}}
    declared = {"name": "p", "root": root, "engine": "inline", "targets": targets, "entities": {"Row": entity}}
    return instep.Instep(Project.model_validate(declared))


def reasons(project: instep.Instep) -> dict[str, str]:
    return {each.uri: each.reason for each in project.failures()}


def test_a_column_of_odd_bytes_fails_its_row_alone(tmp_path: Path) -> None:
    project = opened(tmp_path, {"team": 7, "acl": 13, "body": 11})
    (result,) = project.run()
    assert (result.counts.failed, result.counts.written) == (3, COUNT - 3)
    found = reasons(project)
    assert found["table://Row/k7"] == "column team: bytes that are not UTF-8"
    assert found["table://Row/k13"] == "column acl: bytes that are not UTF-8"
    assert "UTF-8" in found["table://Row/k11"]


def test_a_version_of_odd_bytes_is_a_version(tmp_path: Path) -> None:
    document = {"key": "id", "text": "body", "version": "version"}
    project = opened(tmp_path, {"version": 7}, document=document)
    (result,) = project.run()
    assert (result.counts.failed, result.counts.written) == (0, COUNT)
    assert [each.state for each in project.run()] == [None]


def test_readers_of_odd_bytes_let_nobody_in(tmp_path: Path) -> None:
    project = opened(tmp_path, {"acl": 13}, readers="acl")
    project.run()
    found = project.search("printer", mode="text", limit=50, principals=["alice"])
    assert len(found) == COUNT - 1
    assert "table://Row/k13" not in {each.source_uri for each in found}


def test_a_key_of_odd_bytes_is_none(tmp_path: Path) -> None:
    project = opened(tmp_path, {"id": 7})
    (result,) = project.run()
    assert (result.counts.failed, result.counts.written) == (1, COUNT - 1)
    ((uri, reason),) = reasons(project).items()
    assert "key" in reason, (uri, reason)
    assert [each.state for each in project.run()] == [None]


def test_elements_below_a_null_list_are_no_values() -> None:
    below = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 5], pa.int32()), pa.array(list("abcde")), mask=pa.array([False, True, False])
    )
    found = typed(DocumentColumn("tags", DocumentColumnType.STRINGS), below)
    assert (found.values.to_pylist(), found.wrong) == ([["a"], None, ["d", "e"]], {})


@pytest.mark.parametrize("said", [b'["a", "\xff"]', b"\xff", b"[" * 5_000])
def test_lists_in_json_of_odd_bytes_are_wrong_values(said: bytes) -> None:
    found = typed(DocumentColumn("tags", DocumentColumnType.STRINGS), texts([b'["a"]', said]))
    assert found.values.to_pylist() == [["a"], None]
    assert list(found.wrong) == [1]

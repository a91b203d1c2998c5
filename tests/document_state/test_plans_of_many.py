"""Plans of many documents make no object of each (rule 16 of the design)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import instep
from instep.document_state.columns import FEW, ChangeColumns
from instep.domain.manifest import DocumentChange

DOCUMENTS = FEW + 10_000
PROJECT = """\
name: many
engine: inline
targets: {index: {type: lance, uri: .instep/index}}
entities:
  Document:
    source: {type: spark, path: data}
    document: {key: id, text: text, version: version}
    embed: {type: hashing, dimensions: 8}
"""


def test_a_first_build_is_planned_without_an_object_for_each_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0
    of_columns = ChangeColumns._row

    def counted(rows: ChangeColumns, values: Sequence[Any]) -> DocumentChange:
        nonlocal made
        made += 1
        return of_columns(rows, values)

    monkeypatch.setattr(ChangeColumns, "_row", counted)
    (tmp_path / "data").mkdir()
    numbers = pa.array(range(DOCUMENTS))
    rows = pa.table({"id": numbers, "text": numbers.cast(pa.string()), "version": numbers})
    pq.write_table(rows, tmp_path / "data" / "rows.parquet")
    (tmp_path / "instep.yaml").write_text(PROJECT)

    (answer,) = instep.load(tmp_path).plan()

    assert answer.pending
    assert made < 1_000

"""The questions in `questions/`, asked of an index in ClickHouse in this process, or in Lance."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

QUESTIONS = sorted((Path(__file__).parent / "questions").glob("*.sql"), reverse=True)

#: What the questions read.
_TABLES = ("Person", "Commit", "Commit__AUTHORED", "File", "Change", "Change__CHANGED")
_LOOKS = "output_format_pretty_color = 0, output_format_pretty_fallback_to_vertical = 0"


def answers(index: Path, into: str) -> Iterator[tuple[str, str]]:
    """Each question, with its answer as a table of text."""
    with _clickhouse(index) if into == "clickhouse" else _over_lance(index) as connection:
        for each in QUESTIONS:
            sql = each.read_text(encoding="utf-8")
            question = sql.partition("\n")[0].removeprefix("-- ")
            answer = str(connection.query(f"{sql} SETTINGS {_LOOKS}", "PrettyCompactMonoBlock"))
            yield question, answer or "Nothing: this history is too short to say.\n"


@contextmanager
def _clickhouse(index: Path) -> Iterator[Any]:
    """Instep's views, as any program sees them that opens the folder."""
    from chdb.state.sqlitelike import connect

    with closing(connect(str(index / "clickhouse"))) as connection:
        connection.query("USE instep")
        yield connection


@contextmanager
def _over_lance(index: Path) -> Iterator[Any]:
    """The same views over Lance's datasets, by way of Parquet."""
    import lance
    import pyarrow.parquet as pq
    from chdb.state.sqlitelike import connect

    with TemporaryDirectory() as folder, closing(connect(":memory:")) as connection:
        for table in _TABLES:
            entity, _, kind = table.partition("__")
            name = _served(index, entity) + (f"__{kind}" if kind else "")
            rows = lance.dataset(str(index / f"{name}.lance")).scanner(filter="NOT _deleted")
            file = Path(folder, f"{table}.parquet")
            with pq.ParquetWriter(file, rows.projected_schema) as writer:
                for batch in rows.to_batches():
                    writer.write_batch(batch)
            connection.query(f"CREATE VIEW {table} AS SELECT * FROM file('{file}')")
        yield connection


def _served(index: Path, entity: str) -> str:
    """The newest alias file says which dataset is served."""
    newest = max(index.glob(f"{entity}.alias-*.json"))
    physical: str = json.loads(newest.read_text(encoding="utf-8"))["physical"]
    return physical

"""Columns of documents: what they add to a first run, and what a change of them alone takes.

    python -m bench.columns [--documents 20000] [--repeats 3] [lance] [postgres]

Documents are rows of a Parquet table. First runs with three columns and without any take turns, each in a folder of its
own (goal: 1.1 times). Then a column of 1 % of the documents changes, with their versions: no text may be embedded, and
the run may take twice the time of the store's own client for the same change of its own rows, and a second.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from bench import report
from bench.run import say
from instep import Instep
from instep.project import Project

DOCUMENTS, REPEATS, EVERY = 20_000, 3, 100
FIRST_RATIO, UPDATE_RATIO, UPDATE_SECONDS = 1.1, 2.0, 1.0
_COLUMNS: Final = {"team": "string", "year": "int", "tags": "string[]"}
_BODY: Final = "Ebb and flood of the harbour, told hour by hour, with depth and moon. " * 6

#: Gives these keys this team, in a table that was filled with these rows: the client's own update.
Update: TypeAlias = Callable[[Sequence[int], str], None]


def rows_of(documents: int, *, changed: Sequence[int] = (), team: str = "") -> pa.Table:
    new = set(changed)
    keys = range(documents)
    return pa.table(
        {
            "id": list(keys),
            "body": [f"Document {key}. {_BODY}" for key in keys],
            "version": [2 if key in new else 1 for key in keys],
            "team": [team if key in new else f"team {key % 40}" for key in keys],
            "year": [2000 + key % 25 for key in keys],
            "tags": [[f"tag {key % 7}", f"tag {key % 11}"] for key in keys],
        }
    )


def project(root: Path, data: Path, target: Mapping[str, Any], *, columns: bool) -> Instep:
    entity: dict[str, Any] = {
        "source": {"type": "spark", "path": str(data)},
        "document": {"key": "id", "text": "body", "version": "version"},
        "embed": {"type": "hashing", "dimensions": 384},
    }
    if columns:
        entity["columns"] = _COLUMNS
    declared = {"name": "columns", "root": root, "engine": "inline", "targets": {"index": dict(target)}}
    return Instep(Project.model_validate({**declared, "entities": {"Document": entity}}))


@contextmanager
def lance_side(folder: Path) -> Iterator[tuple[Callable[[str], dict[str, Any]], Callable[[pa.Table], Update]]]:
    import lance

    def bare(rows: pa.Table) -> Update:
        table = lance.write_dataset(rows, f"{folder}/bare.lance")
        table.create_scalar_index("id", "BTREE")

        def update(keys: Sequence[int], team: str) -> None:
            table.update({"team": f"'{team}'"}, where=f"id IN ({', '.join(map(str, keys))})")

        return update

    yield lambda name: {"type": "lance", "uri": f"{folder}/{name}"}, bare


@contextmanager
def postgres_side(_: Path) -> Iterator[tuple[Callable[[str], dict[str, Any]], Callable[[pa.Table], Update]]]:
    import psycopg

    from bench.servers import DurablePostgres

    server = DurablePostgres()
    server.start()
    try:
        uri = server.create("columns")
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")

            def bare(rows: pa.Table) -> Update:
                connection.execute("DROP TABLE IF EXISTS bare")
                connection.execute(
                    "CREATE TABLE bare (id bigint PRIMARY KEY, body text, version bigint, team text, year bigint, "
                    "tags text[], vector vector(384))"
                )
                with connection.cursor().copy(
                    "COPY bare (id, body, version, team, year, tags, vector) FROM STDIN"
                ) as copy:
                    for row in rows.to_pylist():
                        copy.write_row([*[*row.values()][:6], str(row["vector"])])
                connection.execute("CREATE INDEX ON bare (team)")

                def update(keys: Sequence[int], team: str) -> None:
                    connection.execute("UPDATE bare SET team = %s WHERE id = ANY(%s)", (team, list(keys)))

                return update

            yield lambda name: {"type": "postgres", "uri": uri, "schema": name}, bare
    finally:
        server.stop()


SIDES: Final = {"lance": lance_side, "postgres": postgres_side}


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


def measure(name: str, documents: int, repeats: int) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as temporary, SIDES[name](Path(temporary) / "stores") as (target, bare):
        folder = Path(temporary)
        data = folder / "data"
        data.mkdir()
        pq.write_table(rows_of(documents), data / "rows.parquet")
        took: dict[bool, list[float]] = {True: [], False: []}
        for number in range(repeats):
            for columns in (True, False) if number % 2 else (False, True):
                root = folder / f"p{number}{columns}"
                shutil.rmtree(root, ignore_errors=True)
                root.mkdir()
                made = project(root, data, target(f"s{number}{columns}".lower()), columns=columns)
                seconds, _ = timed(made.run)
                took[columns].append(seconds)
        root, schema = folder / f"p{repeats - 1}True", f"s{repeats - 1}true"
        first = {each: statistics.median(took[each]) for each in took}
        ratio = first[True] / first[False]
        shown = [
            f"{first[True]:.2f}",
            f"{first[False]:.2f}",
            f"{ratio:.2f}",
            "met" if ratio <= FIRST_RATIO else "MISSED",
        ]
        table = [[name, "first run, with and without columns", *shown]]

        rows = rows_of(documents)
        zeros = pa.array([0.1] * (384 * documents), pa.float32())
        update = bare(rows.append_column("vector", pa.FixedSizeListArray.from_arrays(zeros, 384)))
        keys = range(7, documents, EVERY)
        ours, theirs = [], []
        for number in range(repeats):
            team = f"new {number}"
            changed = rows_of(documents, changed=keys, team=team)
            versions = pa.array([10 + number if key % EVERY == 7 else 1 for key in range(documents)])
            changed = changed.set_column(changed.schema.get_field_index("version"), "version", versions)
            pq.write_table(changed, data / "rows.parquet")
            made = project(root, data, target(schema), columns=True)
            seconds, results = timed(made.run)
            (result,) = results
            assert (result.counts.written, result.counts.embedded) == (len(keys), 0), result.counts
            ours.append(seconds)
            theirs.append(timed(partial(update, keys, team))[0])
        own, other = statistics.median(ours), statistics.median(theirs)
        met = own <= UPDATE_RATIO * other + UPDATE_SECONDS
        what = f"a column of 1 in {EVERY} changed, and the client's update"
        table.append([name, what, f"{own:.2f}", f"{other:.2f}", f"{own / other:.1f}", "met" if met else "MISSED"])
        return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", choices=list(SIDES), default=list(SIDES), help="which (all)")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help=f"rows of the table ({DOCUMENTS:,})")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"how often each is timed ({REPEATS})")
    asked = parser.parse_args()
    table = []
    for name in asked.targets:
        say(f"{name}: {asked.documents:,} documents")
        table += measure(name, asked.documents, asked.repeats)
    heads = ["target", "case", "Instep (s)", "beside (s)", "ratio", "goal"]
    report.show("Columns of documents", heads, table)


if __name__ == "__main__":
    main()

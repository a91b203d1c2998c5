"""The limit for rows of a table: what a run costs without Instep, as one plain process around pylance.

It compares ids and versions with a file of its own, writes the same ids, hashes, texts and vectors of what is new or
changed, and builds the same indexes: no ledger, no fences, no crash recovery. A text of up to 800 characters is one
chunk, as it is for Instep.

    python -P bench/bare_rows.py PARQUET STATE
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DIMENSIONS = 64
ROWS_PER_BATCH = 10_000
ROWS_PER_FILE = 262_144
#: From here on vectors have an index, as they have with Instep.
ANN_ROWS = 250_000


def main(table: str, state: Path) -> None:
    known = state / "known.arrow"
    listed: Any = pq.read_table(table, columns=["id", "version"]).combine_chunks()
    if not known.exists():
        changed: Any = pa.array([True] * listed.num_rows)
    else:
        with pa.memory_map(str(known)) as mapped:
            recorded: Any = pa.ipc.open_file(mapped).read_all()
        at = pc.index_in(listed["id"], value_set=recorded["id"])
        same: Any = pc.equal(listed["version"], recorded["version"].take(at))
        changed = pc.invert(same.fill_null(False)).combine_chunks()
    number = changed.true_count
    if number:
        write(table, state / "index.lance", listed["id"].filter(changed), first=not known.exists())
        with pa.ipc.new_file(str(known), listed.schema) as writer:
            writer.write_table(listed)
    print(number)


def write(table: str, index: Path, ids: Any, *, first: bool) -> None:
    import lance

    if not first:
        names = ",".join(f"'{document_id(each)}'" for each in ids.to_pylist())
        lance.dataset(str(index)).delete(f"document_id IN ({names})")
    rows = pa.RecordBatchReader.from_batches(schema(), batches(table, None if first else ids))
    mode = "create" if first else "append"
    dataset = lance.write_dataset(rows, str(index), schema(), mode=mode, max_rows_per_file=ROWS_PER_FILE)
    if first:
        from bare import build_text_index  # type: ignore[import-not-found]  # it is run as a script

        dataset.create_scalar_index("document_id", "BTREE", name="document_id")
        dataset.create_scalar_index("chunk_id", "BLOOMFILTER", name="chunk_id")
        build_text_index(dataset)
        if dataset.count_rows() >= ANN_ROWS:
            dataset.create_index("vector", "IVF_SQ", metric="cosine", sample_rate=64)
    else:
        dataset.optimize.optimize_indices(num_indices_to_merge=0)


def batches(table: str, ids: Any) -> Iterator[pa.RecordBatch]:
    from instep.pipeline.documents.embed.hashing import HashingEmbedder

    embed = HashingEmbedder(DIMENSIONS).embed
    for batch in pq.ParquetFile(table).iter_batches(ROWS_PER_BATCH, columns=["id", "text", "version"]):
        rows: Any = batch if ids is None else batch.filter(pc.is_in(batch["id"], value_set=ids))
        if not rows.num_rows:
            continue
        documents = [document_id(each) for each in rows["id"].to_pylist()]
        hashes = [sha256(each.encode()).hexdigest() for each in rows["text"].to_pylist()]
        chunks = [sha256(f"{each}|0|bare".encode()).hexdigest() for each in documents]
        vectors: Any = pa.array(embed(rows["text"]).reshape(-1))
        columns = [
            pa.array(documents),
            pa.array(hashes),
            rows["version"].cast(pa.string()),
            pa.array(chunks),
            pa.array(hashes),
            rows["text"],
            pa.FixedSizeListArray.from_arrays(vectors, DIMENSIONS),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema())


def document_id(key: int) -> str:
    return "doc_" + sha256(f"table://document/{key}".encode()).hexdigest()


def schema() -> pa.Schema:
    names = ("document_id", "document_hash", "source_version", "chunk_id", "chunk_hash", "text")
    vector = pa.field("vector", pa.list_(pa.float32(), DIMENSIONS))
    return pa.schema([*(pa.field(name, pa.string()) for name in names), vector])


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent))  # Last: a module here has the name of one of Python's.
    main(sys.argv[1], Path(sys.argv[2]))

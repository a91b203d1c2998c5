"""The limit: what a run costs without Instep, as one plain Python process around pylance.

Does the same work: list, compare with a manifest of its own, read, hash, chunk with the same splitter,
same ids and hashes, the same hashing embedder, write, index the same columns. It has none of Instep's promises:
no ledger, no fences, no crash recovery, no failure list, no per-chunk difference.

    python bench/bare.py CORPUS STATE [--no-fts]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

DIMENSIONS = 384
CHUNK_SIZE = 800
CHUNKER = "markdown-800-0"
DOCUMENTS_PER_BATCH = 250
#: Several fragments, so that the full-text index can be built on all cores.
ROWS_PER_FILE = 32_768

#: path → [size, mtime in ns, sha256 of the bytes]
Manifest = dict[str, list[Any]]
NEW: list[Any] = []


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("state", type=Path)
    parser.add_argument("--no-fts", action="store_true")
    parser.add_argument("--phases", action="store_true", help="print seconds by phase to stderr")
    options = parser.parse_args()
    clock = Phases()
    found = listing(os.path.abspath(options.corpus))  # noqa: PTH100 -- pathlib costs 10 ms of start here
    clock.done("list")
    manifest_file = options.state / "manifest.json"
    index = str(options.state / "index.lance")
    recorded: Manifest = json.loads(manifest_file.read_text()) if manifest_file.exists() else {}
    changed = [path for path, (size, mtime) in found.items() if recorded.get(path, NEW)[:2] != [size, mtime]]
    gone = [path for path in recorded if path not in found]
    clock.done("compare")
    if changed or gone:
        written = sync(index, recorded, changed, gone, found, fts=not options.no_fts, clock=clock)
        manifest = {path: each for path, each in recorded.items() if path in found} | written
        options.state.mkdir(parents=True, exist_ok=True)
        manifest_file.write_text(json.dumps(manifest))
        clock.done("manifest")
    if options.phases:
        print(clock, file=sys.stderr)
    print(json.dumps({"changed": len(changed), "deleted": len(gone)}))


def listing(root: str) -> dict[str, tuple[int, int]]:
    """Every Markdown file below `root` with its size and mtime."""
    found = {}
    folders = [root]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name.endswith(".md"):
                    status = entry.stat()
                    found[entry.path] = (status.st_size, status.st_mtime_ns)
    return found


def sync(
    index: str,
    recorded: Manifest,
    changed: list[str],
    gone: list[str],
    found: dict[str, tuple[int, int]],
    *,
    fts: bool,
    clock: Phases,
) -> Manifest:
    """Bring the dataset up to date; returns the manifest rows of what was written."""
    import lance
    import pyarrow as pa

    written: Manifest = {}
    stale = [document_id(path) for path in [*changed, *gone] if path in recorded]
    first = not recorded
    clock.done("import")
    if stale:
        dataset = lance.dataset(index)
        dataset.delete("document_id IN (" + ",".join(f"'{each}'" for each in stale) + ")")
        clock.done("delete")
    reader = pa.RecordBatchReader.from_batches(row_schema(), batches(changed, found, written))
    dataset = lance.write_dataset(reader, index, mode="create" if first else "append", max_rows_per_file=ROWS_PER_FILE)
    clock.done("read, chunk, embed, write")
    keep_indexes(dataset, first=first, fts=fts, clock=clock)
    return written


def keep_indexes(dataset: lance.LanceDataset, *, first: bool, fts: bool, clock: Phases) -> None:
    if first:
        dataset.create_scalar_index("document_id", "BTREE", name="document_id")
        clock.done("scalar index")
        if fts:
            build_text_index(dataset)
            clock.done("full-text index")
    else:
        # Only the new fragments: merging into the whole full-text index costs its size each time.
        dataset.optimize.optimize_indices(num_indices_to_merge=0)
        clock.done("new index parts")


def build_text_index(dataset: lance.LanceDataset) -> None:
    """One segment for each core, side by side: lance builds a segment on one core."""
    from concurrent.futures import ThreadPoolExecutor

    fragments = [each.fragment_id for each in dataset.get_fragments()]
    cores = os.cpu_count() or 1

    def segment(part: list[int]) -> Any:
        own = dataset.checkout_version(dataset.version)  # Not to be shared by threads.
        return own.create_index_uncommitted("text", "INVERTED", name="text", fragment_ids=part, with_position=False)

    with ThreadPoolExecutor(cores) as pool:
        parts = [part for core in range(cores) if (part := fragments[core::cores])]
        dataset.commit_existing_index_segments("text", "text", list(pool.map(segment, parts)))


def batches(paths: list[str], found: dict[str, tuple[int, int]], written: Manifest) -> Iterator[pa.RecordBatch]:
    import numpy as np
    import pyarrow as pa
    from semantic_text_splitter import MarkdownSplitter

    embed = embedder()
    splitter = MarkdownSplitter(CHUNK_SIZE)
    for start in range(0, len(paths), DOCUMENTS_PER_BATCH):
        columns: list[list[Any]] = [[] for _ in range(8)]
        texts: list[str] = []
        for path in paths[start : start + DOCUMENTS_PER_BATCH]:
            with open(path, "rb") as file:  # noqa: PTH123 -- the plain way is the quick way
                data = file.read()
            content_hash = sha256(data).hexdigest()
            size, mtime = found[path]
            written[path] = [size, mtime, content_hash]
            chunks = splitter.chunks(data.decode())
            document, count = document_id(path), len(chunks)
            title = chunks[0].partition("\n")[0].lstrip("# ") if chunks else ""
            values = (document, content_hash, f"file://{path}", f"{mtime}", title)
            for column, value in zip(columns, values, strict=False):
                column.extend([value] * count)
            columns[5].extend(sha256(f"{document}|{each}|{CHUNKER}".encode()).hexdigest() for each in range(count))
            columns[6].extend(sha256(each.encode()).hexdigest() for each in chunks)
            columns[7].extend(range(count))
            texts.extend(chunks)
        rows = len(texts)
        text_array = pa.array(texts)
        vectors = embed(text_array)
        document_ids, hashes, uris, versions, titles, chunk_ids, chunk_hashes, positions = columns
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(document_ids),
                pa.array(hashes),
                pa.array(uris),
                pa.array(versions),
                pa.array(chunk_ids),
                pa.array(chunk_hashes),
                pa.array(positions, pa.int32()),
                pa.array(titles),
                text_array,
                pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSIONS),
                pa.array(["Document@global"] * rows),
                pa.array(["bare"] * rows),
                pa.array(np.ones(rows, np.int64)),
            ],
            schema=row_schema(),
        )


def embedder() -> Callable[[pa.StringArray], Any]:
    """The embedder of Instep: texts → float32 matrix."""
    from instep.pipeline.documents.embed.hashing import HashingEmbedder

    return HashingEmbedder(DIMENSIONS).embed


def row_schema() -> pa.Schema:
    import pyarrow as pa

    text = ["document_id", "document_hash", "source_uri", "source_version", "chunk_id", "chunk_hash"]
    fields: list[pa.Field[Any]] = [pa.field(name, pa.string(), nullable=False) for name in text]
    fields += [
        pa.field("chunk_index", pa.int32(), nullable=False),
        pa.field("title", pa.string()),
        pa.field("text", pa.string(), nullable=False),
        pa.field("vector", pa.list_(pa.float32(), DIMENSIONS), nullable=False),
        pa.field("_ref", pa.string(), nullable=False),
        pa.field("_instance", pa.string(), nullable=False),
        pa.field("_version", pa.int64(), nullable=False),
    ]
    return pa.schema(fields)


def document_id(path: str) -> str:
    return "doc_" + sha256(("file://" + quote(path)).encode()).hexdigest()


class Phases:
    """Seconds by phase, since the process began to run Python."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._phases: list[str] = []

    def done(self, name: str) -> None:
        now = time.perf_counter()
        self._phases.append(f"{name} {now - self._last:.3f}")
        self._last = now

    def __str__(self) -> str:
        return " · ".join(self._phases)


if __name__ == "__main__":
    main()

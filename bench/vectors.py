"""Documents into vector databases: a first run, 1 % changed, nothing changed and deletes, beside the database's client.

    python -m bench.vectors [--documents 20000] [--repeats 3] [--target qdrant]… [--no-neighbours]

The client gets rows that lie ready, vectors included, and keeps no record of anything. Instep lists, reads, cuts,
hashes and compares Markdown files, and makes their vectors (by hashing words: two seconds of its time for 200,000
chunks; another embedder's would come from its cache). Both take turns in this process, and end when a reader finds the
rows; the index of neighbours, which Instep builds while the rows are served, is timed by itself on both sides. A run
that finds nothing changed is a whole process, of an Instep that is installed as a user has it. Processor time is that
of client and server together.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import yaml

from bench import bare, corpus, measure, truth
from bench.environment import WORK, describe_machine, virtual_environment
from bench.milvus import Milvus
from bench.pgvector import Pgvector
from bench.qdrant import Qdrant
from bench.report import show
from bench.vector_sides import DIMENSIONS, Side
from instep import Instep
from instep.project import Project
from instep.system import collect_garbage_seldom

SIDES: dict[str, Callable[[], Side]] = {side.name: side for side in (Pgvector, Qdrant, Milvus)}
EXTRAS = ("postgres", "qdrant", "milvus")

INSERT_RATIO, DELETE_RATIO = 0.7, 0.5
UPDATE_RATIO, UPDATE_SECONDS, NOTHING_SECONDS = 2.0, 1.0, 1.0


@dataclass
class Times:
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        each = f" of {' '.join(f'{each:.2f}' for each in self.seconds)}" if len(self.seconds) > 1 else ""
        return f"{self.median:.2f}{each}; {statistics.median(self.cpu):.2f}"

    def take(self, call: Callable[[], Any]) -> None:
        cpu, began = _cpu(), time.perf_counter()
        call()
        self.seconds.append(time.perf_counter() - began)
        self.cpu.append(_cpu() - cpu)


def _cpu() -> float:
    """Of this process and its children, to which the server belongs, those that have ended included."""
    total = 0.0
    for each in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


class Changed(NamedTuple):
    """What a client is told of changed documents."""

    rows: list[pa.RecordBatch]
    gone: list[str]


class Corpus:
    """Files, and the rows that a client gets of them."""

    def __init__(self, folder: Path, documents: int) -> None:
        self.folder = folder
        self.documents = documents
        shutil.rmtree(folder, ignore_errors=True)
        corpus.generate(folder, documents)
        self._file = folder.with_suffix(".arrow")
        #: Hashes of chunks, by document and chunk.
        self._known: dict[str, dict[str, str]] = {}
        with pa.OSFile(str(self._file), "wb") as out, pa.ipc.new_file(out, bare.row_schema()) as writer:
            for batch in self._rows(corpus.markdown_files(folder)):
                writer.write_batch(batch)
                self._remember(batch)

    def rows(self) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(self._file)) as source:
            reader = pa.ipc.open_file(source)
            for at in range(reader.num_record_batches):
                yield reader.get_batch(at)

    @property
    def chunks(self) -> int:
        return sum(len(each) for each in self._known.values())

    def change(self, seed: int) -> Changed:
        """A paragraph in each of 1 % of the documents."""
        mutation = corpus.mutate(self.folder, seed=seed, deleted=0, added=0)
        rows: list[pa.RecordBatch] = []
        gone: list[str] = []
        for batch in self._rows(mutation.changed):
            documents, chunks, hashes = _texts(batch, "document_id", "chunk_id", "chunk_hash")
            old = {chunk: each for name in set(documents) for chunk, each in self._known[name].items()}
            fresh = [old.get(chunk) != found for chunk, found in zip(chunks, hashes, strict=True)]
            rows.append(batch.filter(pa.array(fresh)))
            gone += old.keys() - set(chunks)
            self._remember(batch)
        return Changed(rows, gone)

    def remove(self, count: int) -> list[str]:
        """Documents by id, evenly from all over."""
        paths = list(corpus.markdown_files(self.folder))
        going = paths[:: len(paths) // count][:count]
        for path in going:
            (self.folder / path).unlink()
        return [bare.document_id(str(self.folder / path)) for path in going]

    def _rows(self, paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
        whole = [str(self.folder / path) for path in paths]
        return bare.batches(whole, bare.listing(str(self.folder)), {})

    def _remember(self, batch: pa.RecordBatch) -> None:
        columns = _texts(batch, "document_id", "chunk_id", "chunk_hash")
        fresh: dict[str, dict[str, str]] = {}
        for document, chunk, found in zip(*columns, strict=True):
            fresh.setdefault(document, {})[chunk] = found
        self._known |= fresh


def _texts(batch: pa.RecordBatch, *columns: str) -> list[list[str]]:
    return [[str(each) for each in batch[name].to_pylist()] for name in columns]


class Run:
    """Instep on one target."""

    def __init__(self, side: Side, found: Corpus, folder: Path, installed: Path, *, neighbours: bool) -> None:
        self._side = side
        self._installed = installed
        self._corpus = found
        self._folder = folder
        self._neighbours = neighbours
        self.refined = Times()
        self.forget()

    def forget(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        (self._folder / "instep.yaml").write_text(yaml.safe_dump(self._declared()))

    def _declared(self) -> dict[str, Any]:
        return {
            "name": "bench",
            "engine": "inline",
            "targets": {"index": self._side.declared()},
            "entities": {
                "Document": {
                    "source": {"type": "files", "path": str(self._corpus.folder), "include": ["**/*.md"]},
                    "chunk": {"size": bare.CHUNK_SIZE, "overlap": 0},
                    "embed": {"type": "hashing", "dimensions": DIMENSIONS},
                }
            },
        }

    def __call__(self) -> None:
        """In this process; `refined` is what it took to build what only makes searches quicker."""
        made: Any = type(self._side.target())
        refine = made.refine

        def watched(target: Any, physical: str, begin: Callable[[], None]) -> None:
            self.refined.take(lambda: refine(target, physical, begin) if self._neighbours else None)

        made.refine = watched
        try:
            declared = Project.model_validate({**self._declared(), "root": self._folder})
            (result,) = Instep(declared).run(allow_deletes=True)
        finally:
            made.refine = refine
        assert result.state is None or str(result.state) == "COMPLETED", result.notes

    def command(self) -> None:
        measure.run([self._installed / "instep", "run"], folder=self._folder)

    def verdict(self) -> truth.Verdict:
        """By what the target says that it holds."""
        target = self._side.target()
        physical = target.served("Document")
        assert physical is not None
        stored: truth.Chunks = Counter()
        for batch in target.contents(physical):
            documents, hashes = _texts(batch, "document_id", "chunk_hash")
            stored.update(zip(documents, map(bytes.fromhex, hashes), strict=True))
        return truth.compare(truth.expected(self._corpus.folder), stored)


class Case(NamedTuple):
    """What both sides took. `goal` says whether it was reached, and how it is written."""

    name: str
    bare: Times | None
    instep: Times
    goal: Callable[[float, float], bool] | None
    written: str

    def row(self, target: str) -> list[str]:
        theirs, ours = self.bare.median if self.bare else 0.0, self.instep.median
        met = "" if self.goal is None else "met" if self.goal(theirs, ours) else "MISSED"
        ratio = f"{theirs / ours:.2f}" if self.bare and ours else ""
        return [target, self.name, str(self.bare or ""), str(self.instep), ratio, self.written, met]


def compare(side: Side, found: Corpus, installed: Path, repeats: int, *, neighbours: bool) -> Iterator[Case]:
    run = Run(side, found, WORK / "vectors" / side.name, installed, neighbours=neighbours)
    yield from _first(side, found, run, repeats, neighbours=neighbours)
    yield _nothing(side, run, repeats)
    yield _update(side, found, run, repeats)
    yield _delete(side, found, run)


def _first(side: Side, found: Corpus, run: Run, repeats: int, *, neighbours: bool) -> list[Case]:
    insert, index, first = Times(), Times(), Times()
    for _ in range(repeats):
        side.forget()
        run.forget()
        side.settle()
        insert.take(lambda: side.insert(found.rows()))
        side.settle()
        index.take(side.index if neighbours else lambda: None)
        side.settle()
        first.take(run)
        first.seconds[-1] -= run.refined.seconds[-1]
        first.cpu[-1] -= run.refined.cpu[-1]
        _demand(run, side)
    refined, run.refined = run.refined, Times()
    return [
        Case(
            f"first run, {found.chunks:,} chunks",
            insert,
            first,
            lambda theirs, ours: theirs >= INSERT_RATIO * ours,
            f"{INSERT_RATIO} x",
        ),
        Case("index of neighbours", index, refined, None, ""),
    ]


def _nothing(side: Side, run: Run, repeats: int) -> Case:
    nothing = Times()
    for _ in range(repeats):
        side.settle()
        nothing.take(run.command)
    return Case("nothing changed", None, nothing, lambda _, ours: ours <= NOTHING_SECONDS, f"{NOTHING_SECONDS:g} s")


def _update(side: Side, found: Corpus, run: Run, repeats: int) -> Case:
    bare_update, update, written = Times(), Times(), 0
    for seed in range(repeats):
        changed = found.change(seed)
        written = sum(each.num_rows for each in changed.rows)
        side.settle()
        bare_update.take(partial(side.update, *changed))
        side.settle()
        update.take(run)
        _demand(run, side)
    return Case(
        f"1 % changed, {written:,} chunks",
        bare_update,
        update,
        lambda theirs, ours: ours <= UPDATE_RATIO * theirs + UPDATE_SECONDS,
        f"{UPDATE_RATIO:g} x + {UPDATE_SECONDS:g} s",
    )


def _delete(side: Side, found: Corpus, run: Run) -> Case:
    """Once: there is only one half to delete."""
    count = found.documents // 2
    going = found.remove(count)
    bare_delete, delete = Times(), Times()
    side.settle()
    bare_delete.take(lambda: side.delete(going))
    side.settle()
    delete.take(run)
    _demand(run, side)
    return Case(
        f"{count:,} documents deleted",
        bare_delete,
        delete,
        lambda theirs, ours: theirs >= DELETE_RATIO * ours,
        f"{DELETE_RATIO} x",
    )


def _demand(run: Run, side: Side) -> None:
    """A fast wrong answer does not count, on either side."""
    verdict = run.verdict()
    assert verdict.holds, f"{side.name}: {verdict}"
    assert side.rows() == verdict.rows, f"{side.name}: the client's own table has {side.rows():,} rows"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.vectors", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--target", choices=list(SIDES), action="append")
    parser.add_argument("--no-neighbours", action="store_true", help="do without that index, which takes the longest")
    options = parser.parse_args()
    collect_garbage_seldom()  # As `instep` does in its own process.
    print(", ".join(f"{name} {value}" for name, value in describe_machine().items()), end="\n\n")
    installed = virtual_environment(*EXTRAS)
    rows: list[list[str]] = []
    for name in options.target or SIDES:
        side = SIDES[name]()
        try:
            found = Corpus(WORK / "vectors" / "corpus", options.documents)
            for case in compare(side, found, installed, options.repeats, neighbours=not options.no_neighbours):
                rows.append(case.row(name))
                print(" · ".join(rows[-1]), file=sys.stderr, flush=True)
        finally:
            side.close()
    heads = ["target", "case", "client alone, s; processor", "instep, s; processor", "ratio", "goal", ""]
    show(f"{options.documents:,} documents, vectors of {DIMENSIONS} dimensions", heads, rows)


if __name__ == "__main__":
    main()

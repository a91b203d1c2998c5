"""Readers while an index is built anew, again and again: `python -m bench.rebuilds`.

Two readers ask for a word that every document has, without a pause, while everything is built anew and served in place
of what was there. With Lance they read what Instep says is served, with OpenSearch the alias by its own client.
Counted are answers, errors, and answers without a hit: both have to be none.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from opensearchpy import OpenSearch
from tests.servers.opensearch import running_opensearch

import instep
from bench import report
from bench.run import say
from instep.domain.words import text_query
from instep.targets.lance.target import LanceTarget

REBUILDS, DOCUMENTS, READERS = 20, 60, 2

_WORD = "everywhere"


@dataclass
class Seen:
    """What readers have seen."""

    answers: int = 0
    empty: int = 0
    errors: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def note(self, ask: Callable[[], int]) -> None:
        try:
            hits = ask()
        except Exception as error:
            with self._lock:
                self.errors.append(f"{type(error).__name__}: {error}"[:200])
            return
        with self._lock:
            self.answers += 1
            self.empty += hits == 0


@contextmanager
def reading(ask: Callable[[], int]) -> Iterator[Seen]:
    """Readers at work, until the block ends."""
    seen, stop = Seen(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.note(ask)

    threads = [threading.Thread(target=read) for _ in range(READERS)]
    for each in threads:
        each.start()
    try:
        yield seen
    finally:
        stop.set()
        for each in threads:
            each.join()


def project(folder: Path, target: str, documents: int) -> instep.Instep:
    docs = folder / "docs"
    docs.mkdir(parents=True)
    for number in range(documents):
        (docs / f"{number:04d}.md").write_text(
            f"# Document {number}\n\nA word that is {_WORD}, and the number {number}.\n"
        )
    lines = [
        "name: rebuilds",
        "engine: inline",
        f"targets: {{index: {{{target}}}}}",
        "entities:",
        "  Document:",
        "    source: {type: files, path: docs}",
        "    embed: {type: hashing, dimensions: 32}",
    ]
    (folder / "instep.yaml").write_text("\n".join(lines) + "\n")
    return instep.load(folder)


def on_lance(folder: Path) -> Callable[[], int]:
    target = LanceTarget(str(folder / ".instep" / "index"))

    def ask() -> int:
        served = target.served("Document")
        assert served is not None, "nothing is served"
        return len(target.search(served, entity="Document", text=text_query(_WORD), vector=None, mode="text", limit=10))

    return ask


def on_opensearch(url: str) -> Callable[[], int]:
    client = OpenSearch([url], timeout=120, max_retries=0)

    def ask() -> int:
        found = client.search(index="Document", body={"query": {"match": {"text": _WORD}}})
        return len(found["hits"]["hits"])

    return ask


def measure(place: instep.Instep, ask: Callable[[], int], rebuilds: int) -> tuple[Seen, float]:
    place.run()
    began = time.perf_counter()
    with reading(ask) as seen:
        for number in range(rebuilds):
            (result,) = place.run(full_refresh=True)
            assert result.promoted, result.notes
            say(f"rebuild {number + 1}: {seen.answers:,} answers, {seen.empty} empty, {len(seen.errors)} errors")
    return seen, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rebuilds", type=int, default=REBUILDS)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    options = parser.parse_args()
    table, good = [], True
    for name in ("lance", "opensearch"):
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            if name == "lance":
                target, ask = "type: lance, uri: .instep/index", on_lance(folder)
            else:
                url = running_opensearch().url()
                target, ask = f"type: opensearch, uri: '{url}'", on_opensearch(url)
            seen, seconds = measure(project(folder, target, options.documents), ask, options.rebuilds)
        met = seen.answers > 0 and not seen.empty and not seen.errors
        good = good and met
        found = [f"{options.rebuilds}", f"{seconds:.0f}", f"{seen.answers:,}", f"{len(seen.errors)}", f"{seen.empty}"]
        table.append([name, *found, "met" if met else f"MISSED {seen.errors[:1]}"])
    heads = ["target", "rebuilds", "seconds", "answers", "errors", "empty", "goal: none of both"]
    report.show(f"{READERS} readers while {options.documents} documents are built anew", heads, table)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

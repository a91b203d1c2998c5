"""Document routing after a crash, on the real service and target: docs/documents.md says which promise has which test.

The documents come from a change feed, so that delete markers are events like others. The ledger is in memory and time
is virtual, as in `test_many_workers`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import pytest

import instep
from instep.answers.results import run_answer
from instep.domain.identity import bucket_of, document_id
from instep.domain.jobs import JobState
from instep.domain.manifest import Action
from instep.domain.waves import TaskOutcome, Wave
from instep.entities import setup
from instep.pipeline.engine.engine import TableProgram, WaveProgram
from instep.pipeline.engine.inline import InlineEngine
from tests.doubles.through import replaced

from . import truth
from .conftest import Location
from .test_many_workers import Gone, Site, Still

BUCKETS = 8
PROJECT = f"""\
name: routing
targets: {{index: {{type: lance, uri: .instep/index}}}}
entities:
  Document: {{source: {{type: feed, path: feed}}, buckets: {BUCKETS}}}
"""


class Recording(InlineEngine):
    """Keeps which documents each wave was given. `dies`: the process is gone before the first one comes back."""

    def __init__(self, *, dies: bool = False) -> None:
        super().__init__()
        self._dies = dies
        self.waves: list[Wave] = []

    def run(self, wave: Wave, program: WaveProgram | TableProgram, *told: Any) -> Sequence[TaskOutcome]:
        self.waves.append(wave)
        done = super().run(wave, program, *told)
        if self._dies:
            raise Gone
        return done

    @property
    def splits(self) -> Counter[tuple[str, Action, int]]:
        """Document, what becomes of it, and the bucket of the slice that it came in."""
        return Counter(
            (change.document_id, change.action, part.bucket)
            for wave in self.waves
            for part in wave.slices
            for change in part.changes
        )


class Feed:
    """A feed, and what the index must hold of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "feed" / "1.jsonl"
        self.file.parent.mkdir(parents=True)
        (root / "instep.yaml").write_text(PROJECT)
        self.texts: dict[int, str] = {}

    def put(self, numbers: Sequence[int], text: str) -> None:
        self._add({"id": number, "text": f"{text} of {number}"} for number in numbers)
        self.texts |= {number: f"{text} of {number}" for number in numbers}

    def delete(self, numbers: Sequence[int]) -> None:
        self._add({"id": number, "op": "delete"} for number in numbers)
        for number in numbers:
            self.texts.pop(number)

    def _add(self, lines: object) -> None:
        with self.file.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)  # type: ignore[attr-defined]  # dictionaries, any

    def wrong(self) -> str:
        want = Counter((identity(number), text) for number, text in self.texts.items())
        return truth.difference(want, truth.stored(self.root / ".instep" / "index"))


def identity(number: int) -> str:
    return document_id(f"feed://document/{number}")


def routed(numbers: Sequence[int], action: Action) -> Counter[tuple[str, Action, int]]:
    return Counter((identity(number), action, bucket_of(identity(number), BUCKETS)) for number in numbers)


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "project")


def test_a_restart_assigns_the_same_documents_and_delete_markers_to_the_same_buckets(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was assigned and not confirmed, and what was pending: exactly that, from the ledger, and nothing is lost."""
    monkeypatch.setattr(setup, "MOST_CLAIMS", 2)
    site = Site(Location(feed.root, feed.root))
    changed, deleted = range(20), range(20, 40)
    feed.put(range(50), "first")
    built = Recording()
    site.run(engine=lambda _: built)
    assert built.splits == routed(range(50), Action.INSERT)
    assert feed.wrong() == ""

    feed.put(changed, "second")
    feed.delete(deleted)
    gone = Recording(dies=True)

    def lost(*_: object, **__: object) -> None:
        raise Gone

    frozen = replaced(site.ledger, {"jobs.leave": lost, "workers.retire": lost})
    with pytest.raises(Gone):
        site.run(engine=lambda _: gone, ledger=frozen, background=Still())
    assert 0 < gone.splits.total() < len(changed) + len(deleted)

    # The source changes in between: that is for a second job.
    feed.put([99], "later")
    restart = Recording()
    (result,) = site.run(engine=lambda _: restart)
    assert result.state is JobState.COMPLETED
    expected = routed(changed, Action.UPDATE) + routed(deleted, Action.DELETE)
    assert restart.splits == expected + routed([99], Action.INSERT)
    assert gone.splits <= restart.splits
    assert {part.slice_id for wave in gone.waves for part in wave.slices} <= {
        part.slice_id for wave in restart.waves for part in wave.slices
    }
    assert feed.wrong() == ""


def test_different_documents_have_different_writers_and_each_document_one(feed: Feed) -> None:
    """In one wave a document has one task: `tests/contracts/engine.py`. Here, each document is in one slice of its
    bucket, and there are many.
    """
    site = Site(Location(feed.root, feed.root))
    feed.put(range(50), "first")
    engine = Recording()
    site.run(engine=lambda _: engine)
    assert set(engine.splits.values()) == {1}
    assert {bucket for _, _, bucket in engine.splits} == set(range(BUCKETS))


def test_lines_that_are_delivered_again_change_nothing(feed: Feed) -> None:
    site = Site(Location(feed.root, feed.root))
    feed.put(range(10), "first")
    feed.delete(range(5))
    site.run()
    lines = feed.file.read_text()
    feed.file.write_text(lines + lines)
    again = Recording()
    site.run(engine=lambda _: again)
    assert again.waves == []
    assert feed.wrong() == ""


def test_secrets_in_addresses_of_documents_are_never_stored(feed: Feed, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither of what is indexed, nor of what failed, nor of a line that is refused."""
    signed = "https://ann:hunter2@host/{}?signature=hunter2#hunter2"
    lines = [
        {"uri": signed.format("good.md"), "text": "Ebb and flood"},
        {"uri": signed.format("bad.md"), "text": 1},
        {"uri": "https://ann:hunter2@host:hunter2/", "text": "no port"},
    ]
    feed.file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    project = instep.load(feed.root)
    (result,) = project.run()
    assert (result.counts.written, result.counts.failed) == (1, 1)
    assert result.notes == ["1.jsonl:3: source URI is malformed (host or port)"]
    shown = f"{run_answer(result)} {project.failures()} {project.status()} {project.plan()} {capfd.readouterr()}"
    assert "https://host/bad.md" in shown
    rows = lance.dataset(truth.served(feed.root / ".instep" / "index")).to_table()
    assert rows["source_uri"].to_pylist() == ["https://host/good.md"]
    kept = [path for path in (feed.root / ".instep").rglob("*") if path.is_file()]
    assert any(path.name == "ledger.db" for path in kept)
    assert "hunter2" not in shown + str(rows.to_pylist())
    assert [path.name for path in kept if b"hunter2" in path.read_bytes()] == []

"""What stands above a chunk, title and headings, is embedded and searched with it, and never shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import instep
from instep.domain.jobs import JobState
from instep.pipeline import code_fingerprint
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.columns import chunk_hashes
from instep.pipeline.documents.embed.embedder import PROBE
from instep.pipeline.documents.places import contexts, markdown_headings
from instep.pipeline.documents.rows import embedded_texts
from instep.project import Project

MODULE = """
import json

HERE = {here!r}


def embed(texts):
    with open(HERE + "/asked.jsonl", "a") as file:
        for each in texts:
            file.write(json.dumps(each) + "\\\\n")
    return [[float(len(each)), 1.0, 0.5] for each in texts]


def marked(rows):
    from pyspark.sql import functions as F

    return rows.withColumn("text", F.concat(F.col("text"), F.lit(" Marked.")))
"""
NAME = "context_functions_of_a_test"
GUIDE = """# Tides of Brest

Read this first, whoever you are and wherever you sail.

## Neap

The range is small then, as the moon is at a quarter.

## Spring

The range is large then, as the moon is new or full.
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "docs").mkdir()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{NAME}.py").write_text(MODULE.format(here=str(tmp_path)).replace("\\\\n", "\\n"))
    (tmp_path / "docs" / "guide.md").write_text(GUIDE)
    monkeypatch.syspath_prepend(tmp_path / "code")
    yield tmp_path
    sys.modules.pop(NAME, None)
    code_fingerprint._loaded.clear()


def opened(root: Path, *, context: str | None = "headings", engine: str = "inline", **more: Any) -> instep.Instep:
    entity = {
        "source": {"type": "files", "path": "docs"},
        "target": "index",
        "chunk": {"size": 60, "context": context},
        "embed": {"type": "python", "function": f"{NAME}:embed", "dimensions": 3},
        **more,
    }
    targets = {"index": {"type": "lance", "uri": "index"}}
    declared = {"name": "p", "root": root, "engine": engine, "targets": targets, "entities": {"Page": entity}}
    return instep.Instep(Project.model_validate(declared))


def asked(root: Path) -> list[str]:
    """The texts that were embedded since the last call."""
    file = root / "asked.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    file.unlink(missing_ok=True)
    return [each for each in found if each != PROBE]


def texts(project: instep.Instep, query: str, **more: Any) -> list[str]:
    return [each.text for each in project.search(query, mode="text", limit=20, **more)]


def test_a_chunk_has_above_it_what_it_does_not_begin_with() -> None:
    text = "# Guide\n\none\n\n## Deep\n\ntwo\n\n### Deeper\n\nthree\n\n# Other\n\nfour"
    headings = list(markdown_headings(text))
    starts = [text.index(each) for each in ("# Guide", "one", "## Deep", "two", "three", "four")]
    assert contexts("Guide", headings, [*starts, None]) == [
        "",
        "Guide",
        "Guide",
        "Guide\nDeep",
        "Guide\nDeep\nDeeper",
        "Guide\nOther",
        "Guide",
    ]
    assert contexts("", [], [0, 5]) == ["", ""]


def test_a_line_that_moves_between_a_context_and_its_text_is_another_chunk() -> None:
    one, other = (
        pa.table({"title": ["T"], "context": [context], "text": [text]})
        for context, text in (("A", "B\n\nC"), ("A\n\nB", "C"))
    )
    assert embedded_texts(one) == embedded_texts(other)
    assert chunk_hashes(one, ()) != chunk_hashes(other, ())


def test_a_chunk_without_a_context_has_the_hash_of_one_that_never_has_any() -> None:
    plain = pa.table({"title": ["T", "T"], "text": ["A", "B"]})
    none = plain.append_column("context", pa.array([None, ""], pa.string()))
    assert chunk_hashes(none, ()) == chunk_hashes(plain, ())


def test_headings_are_embedded_and_found_and_not_shown(root: Path) -> None:
    project = opened(root)
    (result,) = project.run()
    assert result.state is JobState.COMPLETED
    (under,) = [each for each in asked(root) if "quarter" in each]
    assert under == "Tides of Brest\nNeap\n\nThe range is small then, as the moon is at a quarter."
    assert len(texts(project, "brest")) == result.counts.rows_written > 4, "each of its chunks"
    assert [each for each in texts(project, "brest") if "Brest" in each] == ["# Tides of Brest"], "it is not shown"
    assert project.run()[0].state is None
    assert [each.differs for each in project.diff(deep=True)] == [False]


def test_another_heading_is_another_context_of_the_chunks_under_it_alone(root: Path) -> None:
    project = opened(root, chunk={"size": 40, "context": "headings"})
    project.run()
    before = asked(root)
    (root / "docs" / "guide.md").write_text(GUIDE.replace("## Spring", "## Sprung"))
    (result,) = project.run()
    again = asked(root)
    assert again
    assert all("Sprung" in each for each in again)
    assert result.counts.rows_written == len(again) < len(before)
    assert any("full" in each for each in texts(project, "sprung"))
    assert texts(project, "spring") == []


def test_it_is_a_new_index_when_it_is_declared(root: Path) -> None:
    opened(root, context=None).run()
    assert texts(opened(root, context=None), "brest quarter", where="title LIKE 'T%'")
    (plan,) = opened(root).plan()
    assert str(plan.kind) == "rebuild"
    assert "chunker" in " ".join(plan.why)
    assert Chunker().fingerprint == Chunker(context=False).fingerprint != Chunker(context=True).fingerprint


def test_a_failing_version_keeps_the_words_of_what_stays(root: Path) -> None:
    """Its readers become fewer; what stands above the texts is not known any more then."""
    front = "---\nacl: [alice, bob]\ndue: 2024-01-01\n---\n"
    guide = root / "docs" / "guide.md"
    guide.write_text(front + GUIDE)
    columns = {"acl": "string[]", "due": "date"}
    project = opened(root, columns=columns, readers="acl")
    project.run()
    found = texts(project, "tides", principals=["alice"])
    guide.write_text(front.replace("[alice, bob]", "[alice]").replace("2024-01-01", "soon") + GUIDE)
    assert project.run()[0].counts.failed == 1
    assert texts(project, "tides", principals=["alice"]) == found
    assert texts(project, "tides", principals=["bob"]) == []
    guide.write_text(front.replace("[alice, bob]", "[alice]") + GUIDE)
    asked(root)
    assert project.run()[0].counts.failed == 0
    assert texts(project, "tides", principals=["alice"]) == found


def test_rows_and_feeds_have_their_titles_above_them(root: Path) -> None:
    (root / "docs" / "feed.jsonl").write_text(
        '{"id": "1", "title": "Lighthouses", "text": "They stand on rocks."}\n{"id": "2", "text": "They float."}\n'
    )
    project = opened(root, source={"type": "feed", "path": "docs/feed.jsonl"})
    project.run()
    assert sorted(asked(root)) == ["2\n\nThey float.", "Lighthouses\n\nThey stand on rocks."]
    assert texts(project, "lighthouses rocks")[0] == "They stand on rocks."


@pytest.mark.proof
def test_on_spark_a_transform_keeps_it(root: Path) -> None:
    project = opened(root, engine="spark", transform=f"{NAME}:marked")
    (result,) = project.run()
    assert result.state is JobState.COMPLETED
    (under,) = [each for each in asked(root) if "quarter" in each]
    assert under.startswith("Tides of Brest\nNeap\n\nThe range")
    assert under.endswith(" Marked.")
    assert len(texts(project, "brest")) == result.counts.rows_written

"""A source that functions of the project list and read."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.domain.jobs import JobState
from instep.errors import Transient, UserError
from instep.pipeline.documents.function_source import FunctionSource
from instep.pipeline.documents.functions import OwnFunction
from instep.project import Project
from instep.sources.document_source import Content, TooLarge
from tests.jobs.own_code import forget

#: The store is a file of JSON: of each id a version, a text, and perhaps more.
MODULE = """
import json
from pathlib import Path

from instep import ListedDocument, ReadDocument, Transient

STORE = Path(__file__).with_name("store.json")


def listed():
    for id, each in json.loads(STORE.read_text()).items():
        if each.get("exit list"):
            raise SystemExit(0)
        if each.get("broken list"):
            raise OSError("the store is away")
        named = ListedDocument(id, each["version"], each.get("size"))
        yield named if each.get("named", True) else (id, each["version"])
        if each.get("twice"):
            yield id, each["version"]


def read(id):
    each = json.loads(STORE.read_text())[id]
    if "error" in each:
        raise ValueError(each["error"])
    if "exit" in each:
        raise SystemExit(0)
    if "away" in each:
        raise Transient("the store is away")
    if "odd" in each:
        return each["odd"]
    if "bytes" in each:
        return each["bytes"].encode("latin-1")
    fields = each.get("fields", {"team": each.get("team")})
    return ReadDocument(each["text"], title=each.get("title"), modified=each.get("modified"), fields=fields)


def wrong():
    return [("only an id",)]


def numbers():
    return [(1, 2)]


def nothing():
    pass


def asking(for_more):
    return []
"""
NAME = "own_source_of_a_test"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / f"{NAME}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    forget(NAME)


def store(root: Path, **documents: dict[str, Any]) -> None:
    (root / "store.json").write_text(json.dumps(documents))


def opened(root: Path, *, listing: str = "listed", **entity: Any) -> instep.Instep:
    source = {"type": "python", "list": f"{NAME}:{listing}", "read": f"{NAME}:read"}
    whole = {"source": source, "columns": {"team": "string"}, "target": "index", "deletes": {"floor": 1, "share": 0.9}}
    targets = {"index": {"type": "lance", "uri": "index"}}
    declared = {"name": "p", "root": root, "engine": "inline", "targets": targets, "entities": {"Doc": whole | entity}}
    return instep.Instep(Project.model_validate(declared))


def found(project: instep.Instep, words: str, **asked: Any) -> dict[str, str]:
    return {hit.source_uri: hit.text for hit in project.search(words, limit=50, mode="text", **asked)}


def test_documents_are_listed_read_changed_and_deleted(root: Path) -> None:
    project = opened(root)
    store(
        root,
        a={"version": "1", "text": "tide and ebb", "title": "Water", "team": "sea"},
        b={"version": "1", "text": "tide and flood", "team": "harbour", "named": False},
        c={"version": "1", "text": "tide of March"},
    )
    (first,) = project.run()
    assert (first.counts.read, first.counts.written) == (3, 3)
    assert found(project, "water") == {"function://Doc/a": "tide and ebb"}
    assert found(project, "tide", where="team = 'harbour'") == {"function://Doc/b": "tide and flood"}
    store(
        root,
        a={"version": "1", "text": "not read: its version is the same", "team": "sea"},
        b={"version": "2", "text": "tide and moon"},
    )
    (second,) = project.run()
    assert (second.counts.read, second.counts.written, second.counts.deleted) == (2, 1, 1)
    assert sorted(found(project, "tide").values()) == ["tide and ebb", "tide and moon"]
    (third,) = project.run()
    assert third.counts.read == 0
    # By the name that the functions have for it.
    assert project.why(None, "b").row["source_uri"] == "function://Doc/b"


def test_bytes_are_parsed_by_what_the_id_ends_with(root: Path) -> None:
    store(
        root,
        **{
            "pages/a b.html": {"version": "1", "bytes": "<title>Page</title><p>tide &amp; ebb</p>"},
            "notes.md": {"version": "1", "bytes": "# Notes\n\ntide"},
        },
    )
    project = opened(root)
    project.run()
    assert found(project, "tide") == {
        "function://Doc/pages%2Fa%20b.html": "tide & ebb",
        "function://Doc/notes.md": "# Notes\n\ntide",
    }


def test_a_document_that_cannot_be_read_fails_alone_with_its_line(root: Path) -> None:
    store(
        root,
        a={"version": "1", "error": "no such ticket"},
        b={"version": "1", "odd": 7},
        c={"version": "1", "odd": None},
        d={"version": "1", "text": "tide"},
    )
    project = opened(root)
    (result,) = project.run()
    assert (result.counts.read, result.counts.failed, result.counts.skipped, result.counts.written) == (4, 2, 1, 1)
    reasons = {each.uri[-1]: (each.stage, each.reason) for each in project.failures()}
    assert reasons["a"][0] == reasons["b"][0] == "read"
    assert reasons["a"][1].startswith("ValueError: no such ticket (")
    assert "in read)" in reasons["a"][1]
    assert reasons["b"][1] == f"{NAME}:read returned int, not text, bytes or a ReadDocument"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"title": 7}, "a ReadDocument whose `title` is int, not text"),
        ({"modified": "yesterday"}, "a ReadDocument whose `modified` is str, not a datetime"),
        ({"modified": 1_700_000_000}, "a ReadDocument whose `modified` is int, not a datetime"),
        ({"fields": ["team"]}, "a ReadDocument whose `fields` is list, not a mapping"),
    ],
)
def test_a_document_that_is_read_with_wrong_facts_fails_alone(root: Path, given: dict[str, Any], said: str) -> None:
    store(root, good={"version": "1", "text": "tide"}, bad={"version": "1", "text": "ebb", **given})
    project = opened(root)
    (result,) = project.run()
    assert (result.counts.failed, result.counts.written) == (1, 1)
    assert project.failures()[0].reason == f"{NAME}:read returned {said}"


def test_half_a_character_in_a_title_stops_nothing(root: Path) -> None:
    store(root, good={"version": "1", "text": "tide"}, half={"version": "1", "text": "tide", "title": "Moon \ud83c"})
    project = opened(root)
    (result,) = project.run()
    assert (result.state, result.counts.written) == (JobState.COMPLETED, 2)
    assert {each.title for each in project.search("tide", mode="text")} == {"good", "Moon ?"}
    assert project.run()[0].state is None


@pytest.mark.parametrize("left", [0, 3])
def test_a_rebuild_counts_documents_that_are_gone_once(root: Path, left: int) -> None:
    """Though the source lists them each time it is looked at before the new index is served."""
    there = {f"d{number}": {"version": "1", "text": "tide"} for number in range(8)}
    store(root, **there)
    project = opened(root)
    project.run()
    store(
        root,
        **{
            name: each if number < left else {"version": "1", "odd": None}
            for number, (name, each) in enumerate(there.items())
        },
    )
    (result,) = project.run(full_refresh=True, allow_deletes=True, allow_empty=True)
    assert (result.counts.read, result.counts.written, result.counts.skipped) == (8, left, 8 - left)


def test_a_run_says_that_listed_documents_were_gone_when_they_were_read(root: Path) -> None:
    """An index that lacks them would be taken for complete."""
    store(root, a={"version": "1", "text": "One."}, b={"version": "1", "odd": None})
    project = opened(root)
    for _ in range(2):
        (result,) = project.run()
        assert any("disappeared before they could be read" in each for each in result.notes)
    store(root, a={"version": "1", "text": "One."}, b={"version": "1", "text": "Two."})
    (result,) = project.run()
    assert result.counts.written == 1
    assert not any("were gone" in each for each in result.notes)


@pytest.mark.parametrize("size", [-5, 0, 7, 10**30])
def test_a_size_is_an_estimate_and_no_change(root: Path, size: int) -> None:
    store(root, a={"version": "1", "text": "the tide", "size": size})
    project = opened(root)
    project.run()
    assert project.run()[0].counts.read == 0, "its version is the same"


def test_an_outage_is_none_of_the_document(root: Path) -> None:
    """So the wave is tried again, and nothing has failed."""
    store(root, a={"version": "1", "text": "tide"}, b={"version": "1", "away": True})
    source = FunctionSource("Doc", OwnFunction(f"{NAME}:listed", ""), OwnFunction(f"{NAME}:read", ""))
    documents = source.list().documents
    answers = pickle.loads(pickle.dumps(source)).contents(documents, max_bytes=1_000)
    assert isinstance(next(answers), Content)
    with pytest.raises(Transient, match="the store is away"):
        next(answers)


def test_a_document_over_the_limit_is_too_large(root: Path) -> None:
    store(root, a={"version": "1", "text": "x" * 1_001})
    source = FunctionSource("Doc", OwnFunction(f"{NAME}:listed", ""), OwnFunction(f"{NAME}:read", ""))
    (answer,) = source.contents(source.list().documents, max_bytes=1_000)
    assert isinstance(answer, TooLarge)


@pytest.mark.parametrize(
    ("listing", "documents", "message"),
    [
        (
            "listed",
            {"a": {"version": "1", "text": "x"}, "b": {"version": "1", "broken list": True}},
            "the store is away",
        ),
        ("listed", {"a": {"version": "1", "text": "x", "twice": True}}, "it lists function://Doc/a twice"),
        ("listed", {"a": {"version": "", "text": "x"}}, "it lists ListedDocument, not documents"),
        ("listed", {"\ud83c": {"version": "1", "text": "x"}}, "it lists ListedDocument, not documents"),
        (
            "listed",
            {"a": {"version": "1", "text": "x", "size": float("inf")}},
            "it lists ListedDocument, not documents",
        ),
        ("wrong", {}, "it lists tuple, not documents"),
        ("numbers", {}, "it lists tuple, not documents"),
        ("nothing", {}, "it returned NoneType, not documents"),
        ("asking", {}, rf"missing 1 required positional argument: 'for_more' \(.*{NAME}.py:\d+ in asking\)"),
        ("missing", {}, "missing"),
    ],
)
def test_a_listing_that_is_wrong_does_nothing_and_deletes_nothing(
    root: Path, listing: str, documents: dict[str, Any], message: str
) -> None:
    store(root, old={"version": "1", "text": "tide"})
    opened(root).run()
    store(root, **documents)
    project = opened(root, listing=listing)
    with pytest.raises(UserError, match=message):
        project.run()
    assert found(opened(root), "tide") == {"function://Doc/old": "tide"}


def test_other_code_that_reads_reads_all_anew(root: Path) -> None:
    store(root, a={"version": "1", "text": "tide"})
    opened(root).run()
    (root / f"{NAME}.py").write_text(MODULE.replace('each["text"],', 'each["text"].upper(),'))
    forget(NAME)
    project = opened(root)
    (plan,) = project.plan()
    assert plan.kind == "rebuild"
    assert "document changed" in " ".join(plan.why)
    project.run()
    assert found(project, "tide") == {"function://Doc/a": "TIDE"}


def test_a_function_that_ends_the_process_is_a_failure_that_is_told(root: Path) -> None:
    store(root, good={"version": "1", "text": "the tide"}, bad={"version": "1", "exit": True})
    project = opened(root)
    (result,) = project.run()
    assert (result.counts.written, result.counts.failed) == (1, 1)
    assert project.failures()[0].reason.startswith("SystemExit: 0 (")
    store(root, good={"version": "2", "text": "the tide", "exit list": True})
    with pytest.raises(UserError, match="it cannot list documents: SystemExit: 0"):
        project.run()

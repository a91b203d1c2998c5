"""A change feed: which line of a document counts, what is deleted, and what is wrong with lines."""

from __future__ import annotations

import json
import pickle
import tempfile
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from instep.document_state.columns import ListedColumns
from instep.domain.identity import document_id
from instep.domain.manifest import Action, ManifestEntry, SourceDocument, difference
from instep.domain.storable import storable_version
from instep.errors import UserError
from instep.sources.document_source import Content, TooLarge, Unreadable, Vanished
from instep.sources.feed import FeedSource, feed_source
from instep.sources.feed_lines import Malformed, event_of
from instep.sources.files import FilesSource

BIG = 1 << 20


def feed(*paths: Path | str, max_line: int = BIG, **options: Any) -> FeedSource:
    return feed_source("Ticket", map(str, paths), options, max_line=max_line)


def put(path: Path, *lines: dict[str, Any] | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def texts(source: FeedSource) -> dict[str, str]:
    """What its documents say, by the end of their URI."""
    listed = source.list().documents
    answers = list(source.contents(listed, max_bytes=BIG))
    for each, answer in zip(listed, answers, strict=True):
        assert isinstance(answer, Content), answer
        assert (answer.size, answer.version) == (each.size, each.version)
    found = zip(listed, answers, strict=True)
    return {each.uri.rpartition("/")[2]: answer.data.decode() for each, answer in found if isinstance(answer, Content)}


def gone(source: FeedSource) -> list[str]:
    return [uri.rpartition("/")[2] for uri in source.list().deleted]


def test_the_last_line_of_a_document_counts_in_the_order_of_file_names(tmp_path: Path) -> None:
    put(tmp_path / "2.jsonl", {"id": "a", "text": "second"}, {"id": "c", "op": "delete"}, {"id": "d", "text": "new"})
    put(
        tmp_path / "1.jsonl",
        {"id": "a", "text": "first"},
        {"id": "b", "text": "stays"},
        {"id": "c", "op": "upsert", "text": "was"},
        {"id": "d", "op": "delete"},
    )
    put(tmp_path / "notes.txt", "no feed")
    source = feed(tmp_path)
    assert texts(source) == {"a": "second", "b": "stays", "d": "new"}
    assert gone(source) == ["c"]
    listing = source.list()
    assert (listing.exhaustive, listing.complete) == (False, True)
    assert texts(feed(tmp_path / "?.jsonl", tmp_path / "1.json*")) == texts(source)
    assert texts(feed(tmp_path / "1.jsonl"))["a"] == "first"
    assert texts(pickle.loads(pickle.dumps(source))) == texts(source)


LINES = st.one_of(
    st.builds(lambda name: {"id": name, "op": "delete"}, st.sampled_from("abc")),
    st.builds(lambda name, text: {"id": name, "text": text}, st.sampled_from("abc"), st.sampled_from("xy")),
    st.just("no JSON"),
)


@given(st.lists(LINES, max_size=12), st.integers(1, 3))
@example([{"id": "a", "text": "x"}, {"id": "a", "op": "delete"}], 1)
def test_a_long_feed_is_listed_as_a_short_one_is(lines: list[dict[str, Any] | str], few: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        source = feed(put(Path(folder) / "1.jsonl", *lines))
        short, told = source.list(), list[int]()
        patched.setattr("instep.sources.feed.FEW", few)
        long = source.list(told.append)
    assert list(long.documents) == list(short.documents)
    assert (long.deleted, long.problems, long.exhaustive) == (short.deleted, short.problems, short.exhaustive)
    assert told == [len(short.documents)]
    several = len({line["id"] for line in lines if isinstance(line, dict)}) >= few
    assert isinstance(long.documents, ListedColumns) == several


def test_a_line_with_half_of_a_character_is_a_failure_of_its_document_or_deletes_it(tmp_path: Path) -> None:
    """It may be the one that takes a reader away."""
    first = put(tmp_path / "1.jsonl", {"id": "a", "text": "x"}, {"id": "b", "text": "x"})
    later = b'{"id": "a", "acl": [], "text": "half \\ud800"}\n{"id": "b", "op": "delete", "note": "\\ud800"}\n'
    (tmp_path / "2.jsonl").write_bytes(later + b'{"id": "\\ud800", "text": "no name"}\n')
    source = feed(first.parent)
    (problem,) = source.list().problems
    assert problem.startswith("2.jsonl:3: not JSON")
    (document,) = source.list().documents
    (answer,) = source.contents([document], max_bytes=1_000)
    assert isinstance(answer, Unreadable)
    assert str(answer).startswith("2.jsonl:1: ")


def test_names_of_documents_in_a_feed(tmp_path: Path) -> None:
    signed = "HTTPS://ann:hunter2@Host/a.pdf?signature=hunter2"
    put(
        tmp_path / "f.jsonl",
        {"id": 7, "version": 3, "title": "Tides", "text": "Ebb\nand flood"},
        {"id": "a/b c?#ü", "text": ""},
        {"uri": signed, "text": "not a PDF any more", "version": 1.5},
    )
    source = feed(tmp_path)
    listed = source.list().documents
    assert [each.uri for each in listed] == [
        "feed://Ticket/7",
        "feed://Ticket/a%2Fb%20c%3F%23%C3%BC",
        "https://host/a.pdf",
    ]
    assert [listed[0].version, listed[2].version] == ["3", "1.5"]
    seven, _, pdf = source.contents(listed, max_bytes=BIG)
    assert isinstance(seven, Content)
    assert (seven.data, seven.title, seven.text) == (b"Ebb\nand flood", "Tides", True)
    assert isinstance(pdf, Content)
    assert pdf.title == ""
    # The signature of today is another one: it is the same document.
    put(tmp_path / "g.jsonl", {"uri": "https://host/a.pdf?signature=other", "op": "delete"})
    assert feed(tmp_path).list().deleted == ["https://host/a.pdf"]


def test_without_a_version_every_field_counts(tmp_path: Path) -> None:
    put(tmp_path / "f.jsonl", {"id": 1, "text": "x"}, {"id": 2, "text": "x", "version": "v"})
    before = [each.version for each in feed(tmp_path).list().documents]
    put(tmp_path / "f.jsonl", {"id": 1, "text": "x", "title": "t"}, {"id": 2, "text": "x", "version": "v"})
    after = [each.version for each in feed(tmp_path).list().documents]
    assert before[0] != after[0]
    assert before[1] == after[1] == "v"


def test_a_byte_order_mark_is_no_part_of_a_line(tmp_path: Path) -> None:
    """A file may begin with one, and so may any line of files that were put together."""
    mark = "\ufeff"
    lines = [json.dumps({"id": name, "text": name}) for name in "abc"]
    (tmp_path / "1.jsonl").write_text(f"{mark}{lines[0]}\n{lines[1]}\n{mark}{lines[2]}", encoding="utf-8")
    source = feed(tmp_path)
    assert source.list().problems == []
    assert texts(source) == {"a": "a", "b": "b", "c": "c"}
    versions = [each.version for each in source.list().documents]
    (tmp_path / "1.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert [each.version for each in source.list().documents] == versions


def test_a_line_without_a_document_is_a_problem_with_its_position(tmp_path: Path) -> None:
    put(
        tmp_path / "f.jsonl",
        {"id": "a", "text": "x"},
        "",
        '{"id": "hunter2", ',
        '["id"]',
        {"text": "whose?"},
        {"id": "hunter2", "uri": "https://h/hunter2", "text": "x"},
        {"uri": "hunter2", "text": "x"},
        {"id": ["hunter2"]},
        {"id": "long", "text": "x" * 9_000},
        '{"id": "deep", "x": ' + "[" * 4_000,
        {"id": "b", "text": "y"},
    )
    listing = feed(tmp_path, max_line=5_000).list()
    assert [each.uri[-1] for each in listing.documents] == ["a", "b"]
    assert listing.problems == [
        "f.jsonl:3: not JSON: Input data was truncated",
        "f.jsonl:4: not a JSON object",
        "f.jsonl:5: has neither `id` nor `uri`",
        "f.jsonl:6: has both `id` and `uri`: one of them names the document, in all lines",
        "f.jsonl:7: source URI has no scheme",
        "f.jsonl:8: `id` is text or a whole number, and `uri` is text",
        "f.jsonl:9: is longer than a document may be",
        "f.jsonl:10: lists and objects are nested too deep",
    ]
    put(tmp_path / "f.jsonl", *["{"] * 25)
    assert feed(tmp_path).list().problems[-1] == "and 5 more lines"
    assert len(feed(tmp_path).list().problems) == 21


def test_a_line_that_names_its_document_and_is_wrong_is_a_failure_of_that(tmp_path: Path) -> None:
    wrong: list[dict[str, Any] | str] = [
        {"id": "none"},
        {"id": "null", "text": None},
        {"id": "number", "text": 5},
        {"id": "title", "text": "x", "title": [1]},
        {"id": "op", "op": "upgrade", "text": "x"},
        {"id": "kind", "op": 3, "text": "x"},
    ]
    put(tmp_path / "f.jsonl", *wrong)
    with (tmp_path / "f.jsonl").open("ab") as file:
        file.write(b'{"id": "bytes", "text": "\xff"}\n')
    source = feed(tmp_path)
    listing = source.list()
    assert (listing.problems, listing.deleted) == ([], [])
    reasons = {}
    for document, answer in zip(listing.documents, source.contents(listing.documents, max_bytes=BIG), strict=True):
        assert isinstance(answer, Unreadable)
        reasons[document.uri.rpartition("/")[2]] = str(answer)
    assert reasons == {
        "none": "f.jsonl:1: `text` is missing",
        "null": "f.jsonl:2: `text` is missing",
        "number": "f.jsonl:3: Expected `str | null`, got `int` - at `$.text`",
        "title": "f.jsonl:4: Expected `str | null`, got `array` - at `$.title`",
        "op": "f.jsonl:5: `op` is neither upsert nor delete",
        "kind": "f.jsonl:6: Expected `str`, got `int` - at `$.op`",
        "bytes": "f.jsonl:7: not UTF-8",
    }


def test_nothing_is_deleted_that_a_malformed_line_may_have_brought_back(tmp_path: Path) -> None:
    before, after = {"id": "before", "op": "delete"}, {"id": "after", "op": "delete"}
    put(tmp_path / "f.jsonl", before, '{"id": "bef', after)
    assert gone(feed(tmp_path)) == ["after"]
    put(tmp_path / "f.jsonl", before, {"id": "other", "text": "x"}, after)
    assert gone(feed(tmp_path)) == ["before", "after"]


def test_a_line_that_is_being_written_is_left_for_the_next_time(tmp_path: Path) -> None:
    path = put(tmp_path / "f.jsonl", {"id": "a", "text": "x"})
    line = json.dumps({"id": "b", "text": "y"})
    for length in range(1, len(line)):
        path.write_text(json.dumps({"id": "a", "text": "x"}) + "\n" + line[:length])
        listing = feed(tmp_path).list()
        assert ([each.uri[-1] for each in listing.documents], listing.problems) == (["a"], []), length
    # Many a writer leaves out the end of the last line: it is whole.
    path.write_text(json.dumps({"id": "a", "text": "x"}) + "\r\n" + line)
    assert texts(feed(tmp_path)) == {"a": "x", "b": "y"}


def test_a_feed_that_was_written_anew_since_its_listing_gives_nothing_wrong(tmp_path: Path) -> None:
    path = put(tmp_path / "f.jsonl", {"id": "a", "text": "first"}, {"id": "b", "text": "other"})
    source = feed(tmp_path)
    first, second = source.list().documents
    put(path, {"id": "b", "text": "first"}, {"id": "a", "text": "o"})
    assert [type(each) for each in source.contents([first, second], max_bytes=BIG)] == [Vanished, Vanished]
    put(path, {"id": "a", "text": "newer"})
    newer, _ = source.contents([first, second], max_bytes=BIG)
    assert isinstance(newer, Content)
    assert (newer.data, newer.version == first.version) == (b"newer", False)
    path.unlink()
    assert isinstance(next(source.contents([first], max_bytes=BIG)), Vanished)


def test_a_document_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    put(tmp_path / "f.jsonl", {"id": "a", "text": "x" * 500})
    source = feed(tmp_path)
    (document,) = source.list().documents
    (answer,) = source.contents([document], max_bytes=100)
    assert isinstance(answer, TooLarge)
    assert answer.size == document.size > 500


def test_a_place_that_cannot_be_read_is_an_error_not_an_older_version(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be listed"):
        feed(tmp_path / "nowhere").list()
    put(tmp_path / "1.jsonl", {"id": "a", "text": "x"})

    class Locked(FilesSource):
        def open(self, uri: str) -> Any:
            raise Unreadable("permission denied")

    broken = FeedSource("Ticket", (Locked((str(tmp_path),)),), BIG)
    with pytest.raises(UserError, match="cannot be read: permission denied"):
        broken.list()


def test_feeds_behind_urls(tmp_path: Path) -> None:
    fs, folder = fsspec.filesystem("memory"), f"/{uuid.uuid4().hex}"
    fs.pipe(f"{folder}/1.jsonl", b'{"id": 1, "text": "one"}\n{"id": 2, "text": "two"}\n')
    fs.pipe(f"{folder}/2.jsonl", b'{"id": 2, "op": "delete"}\n{"id": 3, "text": "thr')
    source = feed(f"memory:/{folder}/*.jsonl")
    assert texts(source) == {"1": "one"}
    assert gone(source) == ["2"]
    assert texts(pickle.loads(pickle.dumps(source))) == {"1": "one"}


def test_documents_that_no_line_is_of_are_left_alone(tmp_path: Path) -> None:
    put(tmp_path / "f.jsonl", {"id": 1, "text": "one"}, {"id": 2, "op": "delete"})
    listing = feed(tmp_path).list()
    uris = [f"feed://Ticket/{number}" for number in (1, 2, 3)]
    recorded = {uri: ManifestEntry(document_id(uri), uri, 1, "old", "hash", 1, 0) for uri in uris}
    found = difference(
        listing.documents,
        recorded,
        {},
        complete=listing.complete and listing.exhaustive,
        buckets=4,
        deleted=listing.deleted,
    )
    assert [(each.action, each.uri[-1]) for each in found.changes] == [(Action.UPDATE, "1"), (Action.DELETE, "2")]
    assert found.gone == 0
    assert isinstance(listing.documents[0], SourceDocument)
    assert found.changes[0].locator == listing.documents[0].locator


def test_a_version_may_be_any_text_and_is_one_that_ledgers_keep(tmp_path: Path) -> None:
    said = ["v" * 255, "v" * 256, "v" * 257, "nul\0", "nul\0 ", "nul"]
    put(tmp_path / "a.jsonl", *({"id": str(at), "version": each, "text": "t"} for at, each in enumerate(said)))
    source = feed(tmp_path)
    versions = [each.version for each in source.list().documents]
    assert versions == list(map(storable_version, said))
    assert len(set(versions)) == len(said)
    assert max(map(len, versions)) <= 255
    texts(source)


def test_files_are_read_in_the_order_of_their_names_however_they_are_given(tmp_path: Path) -> None:
    first = put(tmp_path / "1.jsonl", {"id": "a", "text": "old"})
    last = put(tmp_path / "2.jsonl", {"id": "a", "text": "new"})
    for paths in ((first, last), (last, first)):
        assert texts(feed(*paths)) == {"a": "new"}


def test_a_feed_in_the_project_is_read_wherever_that_is(tmp_path: Path) -> None:
    """A glob is one below the project alone: what is above it may be called as it likes."""
    project, other = tmp_path / "a[1]*" / "project", put(tmp_path / "z" / "3.jsonl", {"id": "c", "text": "absolute"})
    put(project / "feed" / "2.jsonl", {"id": "a", "text": "last"}, {"id": "c", "text": "early"})
    put(project / "1.jsonl", {"id": "a", "text": "first"}, {"id": "b", "text": "b"})
    paths = ["*.jsonl", "feed/?.jsonl", str(other)]
    source = feed_source("Ticket", paths, {}, max_line=BIG, project=str(project))
    assert texts(source) == {"a": "last", "b": "b", "c": "absolute"}
    listed = source.list().documents
    (tmp_path / "a[1]*").rename(tmp_path / "moved")
    moved = feed_source("Ticket", paths, {}, max_line=BIG, project=str(tmp_path / "moved" / "project"))
    assert moved.list().documents == listed
    # As a slice has them that was planned where the project was before.
    answers = [each.data for each in moved.contents(listed, max_bytes=BIG) if isinstance(each, Content)]
    assert sorted(answers) == [b"absolute", b"b", b"last"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": 1.5, "text": ',
        b'{"id":"a","op":null,"title":"cut off',
        b'{"id":"a","op":null,"text":"\\ud800"}',
        b'{"id":"a","version":true,"uri":"\xe4"}',
        b'{"id":"a","op":null,"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_line_that_is_wrong_in_two_ways_is_malformed(line: bytes) -> None:
    with pytest.raises(Malformed):
        event_of(line)

"""Documents that fail: what is indexed of their older versions is found by those alone whom both versions name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instep.domain.document_columns import DocumentColumnType, Origin
from instep.domain.manifest import SourceDocument
from instep.domain.readers import PUBLIC, among_both, may_read
from instep.pipeline.documents.chunk import Limits, Oversize
from instep.pipeline.documents.embed.embedder import EmbedRejected
from instep.pipeline.documents.embed.hashing import HashingEmbedder
from instep.pipeline.documents.parse import FileParser
from instep.pipeline.documents.pipeline import DocumentProgram
from instep.sources.document_source import Answer, TooLarge, Unread, Unreadable
from instep.sources.files import FilesSource
from tests.documents.test_columns import BODY, declared
from tests.documents.test_pipeline import Project

_T: Final = DocumentColumnType
ACL: Final = declared("acl", _T.STRINGS, Origin.FRONT_MATTER, lenient=True)
COLUMNS: Final = (ACL, declared("due", _T.DATE, Origin.FRONT_MATTER), declared("year", _T.INT, Origin.PATH, r"x-(\d+)"))


class WithReaders(Project):
    """See `Project`; its documents name their readers."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        super().__init__(folder, **{"columns": COLUMNS, "readers": ACL, **changes})

    def write(self, readers: str | None, *, name: str = "a.md", more: str = "", body: str = BODY) -> None:
        said = "" if readers is None else f"acl: {readers}\n"
        self.put(name, f"---\n{said}{more}---\n{body}")

    def readers(self, name: str = "a.md") -> list[str] | None:
        """Readers of a document, which are those of all of its rows."""
        found = {tuple(row["acl"] or ()) for row in self.target.stored("p") if row["source_uri"].endswith(name)}
        assert len(found) <= 1
        return sorted(found.pop()) if found else None


@pytest.fixture
def project(tmp_path: Path) -> WithReaders:
    return WithReaders(tmp_path)


WRONG: Final = "due: soon\n"


@pytest.mark.parametrize(
    ("before", "now", "left", "note"),
    [
        ("[alice, bob]", "[bob]", ["bob"], ""),
        (f"[{PUBLIC}]", "[bob]", ["bob"], ""),
        ("[alice]", f"[{PUBLIC}]", ["alice"], "found by those alone whom its older version names as well"),
        ("[alice]", "[alice, bob]", ["alice"], "found by those alone whom its older version names as well"),
        ("[alice]", "[bob]", [], "found by nobody until it is mended"),
        ("[alice]", "alice", [], "found by nobody until it is mended"),
        ("[alice]", None, [], "found by nobody until it is mended"),
        ("[alice, bob]", "[bob, alice]", ["alice", "bob"], ""),
    ],
)
def test_a_document_that_fails_is_found_by_whom_both_versions_name(
    project: WithReaders, before: str, now: str | None, left: list[str], note: str
) -> None:
    project.write(before)
    project.sync()
    texts = project.stored()
    project.write(now, more=WRONG, body="Another text, which is not indexed.\n")
    counts = project.sync()
    assert (counts.failed, counts.written, counts.embedded, counts.rows_written) == (1, 0, 0, 0)
    assert project.readers() == left
    assert project.stored() == texts
    reason = project.failures["a.md"].reason
    assert reason.startswith("column due: ")
    assert reason.endswith(note)
    assert ";" in reason if note else ";" not in reason
    assert project.changes() == [], "it is not tried again before it changes"
    assert project.sync(project.changes(retry=True)).failed == 1
    assert project.readers() == left
    assert project.failures["a.md"].reason == reason


def test_a_document_that_is_mended_has_the_readers_that_it_names(project: WithReaders) -> None:
    project.write("[alice]")
    project.sync()
    project.write("[bob]", more=WRONG)
    project.sync()
    assert project.readers() == []
    # Just as it was before: nothing of it is "unchanged".
    project.write("[alice]")
    counts = project.sync()
    assert (counts.written, counts.embedded) == (1, 0)
    assert project.readers() == ["alice"]
    assert project.sync().read == 0


def _answering(answer: Answer) -> type[FilesSource]:
    class Answering(FilesSource):
        def contents(self, documents: Iterable[SourceDocument], *, max_bytes: int) -> Iterator[Answer]:
            return (answer for _ in documents)

    return Answering


class Refusing(HashingEmbedder):
    def embed(self, texts: Any) -> Any:
        if any("poison" in str(text) for text in texts):
            raise EmbedRejected("the text is no good")
        return super().embed(texts)

    def embed_runs(self, texts: Any, runs: Any) -> Any:
        return self.embed(texts)


@pytest.mark.parametrize("answer", [TooLarge(10), Unread("no rights"), Unreadable("is no file")])
def test_a_document_that_cannot_be_read_is_found_by_nobody(project: WithReaders, answer: Answer) -> None:
    project.write("[alice]")
    project.write("[alice]", name="b.md")
    project.sync()
    project.write("[alice]", more="due: 2024-01-01\n")
    source = _answering(answer)
    project.program = dataclasses.replace(project.program, source=source((str(project.folder),)))
    assert project.sync().failed == 1
    assert (project.readers(), project.readers("b.md")) == ([], ["alice"])
    assert "found by nobody" in project.failures["a.md"].reason
    project.program = dataclasses.replace(project.program, source=project.source)
    project.sync(project.changes(retry=True))
    assert project.readers() == ["alice"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("---\nacl: [bob]\n---\nA NUL: \0\n", []),
        (f"---\nacl: [bob]\n---\n{'x' * 2_000}\n", []),
        ("---\nacl: [bob]\n---\npoison\n", ["bob"]),
        ("---\nacl: [bob]\n---\n" + "Some words of a text. " * 60, ["bob"]),
    ],
    ids=["parse", "line", "embed", "chunks"],
)
def test_it_is_so_at_whatever_stage_it_fails(tmp_path: Path, text: str, left: list[str]) -> None:
    limits = Limits(max_line_bytes=1_900, max_chunks=20, on_oversize=Oversize.SKIP)
    project = WithReaders(tmp_path, embedder=Refusing(16), limits=limits)
    project.write("[alice, bob]")
    project.sync()
    project.put("a.md", text)
    counts = project.sync()
    assert counts.failed + counts.skipped == 1
    assert counts.written == 0
    assert project.readers() == left


def test_a_wrong_value_of_the_path_hides_no_readers_in_the_text(project: WithReaders) -> None:
    project.write("[alice, bob]", name="x-2024.md")
    project.sync()
    # The same document by its id, as far as the target knows: its path says something else now.
    year = declared("year", _T.INT, Origin.PATH, r"(x)-")
    project.program = dataclasses.replace(project.program, columns=(*COLUMNS[:2], year))
    project.write("[bob]", name="x-2024.md")
    assert project.sync().failed == 1
    assert project.readers("x-2024.md") == ["bob"]


def test_a_wrong_value_hides_no_readers_that_are_declared_after_it(tmp_path: Path) -> None:
    acl, due, year = COLUMNS
    project = WithReaders(tmp_path, columns=(due, acl, year))
    project.write("[alice, bob]")
    project.sync()
    project.write("[bob]", more=WRONG)
    assert project.sync().failed == 1
    assert project.readers() == ["bob"]


@dataclass(frozen=True)
class Transforming(DocumentProgram):
    """A transform lets alice read everything."""

    def read(self, changes: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in super().read(changes):
            yield batch.append_column("acl", pa.array([["alice"]] * batch.num_rows, pa.list_(pa.string())))


def test_readers_that_a_transform_adds_cannot_be_told_of_what_fails(tmp_path: Path) -> None:
    added = declared("acl", _T.STRINGS, Origin.TRANSFORM, lenient=True)
    project = WithReaders(tmp_path, columns=(added,), readers=added, embedder=Refusing(16))
    project.program = Transforming(**{**vars(project.program), "transformed": True})
    project.put("a.md", "Some text.\n")
    project.sync()
    assert project.readers() == ["alice"]
    project.put("a.md", "Some poison.\n")
    assert project.sync().failed == 1
    assert project.readers() == []


_READERS = st.lists(st.sampled_from([PUBLIC, "alice", "bob", "carol"]), max_size=4)


@given(before=_READERS, now=_READERS, asked=st.lists(st.sampled_from(["alice", "bob", "carol"])))
def test_who_finds_it_could_read_both_versions(before: list[str], now: list[str], asked: Sequence[str]) -> None:
    left = among_both(before, now)
    assert not may_read(left, asked) or (may_read(before, asked) and may_read(now, asked))
    assert among_both(left, now) == left
    for each in ("alice", "bob", "carol"):
        assert may_read(left, [each]) == (may_read(before, [each]) and may_read(now, [each]))


SECRET: Final = "quagga"


class Echoing(HashingEmbedder):
    def embed(self, texts: Any) -> Any:
        if quoted := [str(text) for text in texts if SECRET in str(text)]:
            raise EmbedRejected(f"the embedder refused it (422): input {quoted[0]}")
        return super().embed(texts)

    def embed_runs(self, texts: Any, runs: Any) -> Any:
        return self.embed(texts)


def test_no_reason_quotes_a_document_that_not_everybody_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: FileParser, data: bytes, *__: object, **___: object) -> Any:
        raise ValueError(f"odd: {data!r}")

    for secret in (True, False):
        folder = tmp_path / str(secret)
        folder.mkdir()
        changes: dict[str, Any] = {} if secret else {"readers": None}
        embedding = WithReaders(folder, embedder=Echoing(16), **changes)
        embedding.write("[alice]", body=SECRET)
        parsing = WithReaders(folder, **changes)
        for project, stage in ((embedding, "embed"), (parsing, "parse")):
            if stage == "parse":
                monkeypatch.setattr(FileParser, "parse", broken)
            assert project.sync().failed == 1
            failure = project.failures["a.md"]
            assert failure.stage == stage
            assert (SECRET in failure.reason) is not secret, failure.reason
            assert ("as its documents have readers" in failure.reason) is secret
        monkeypatch.undo()


_WAYS: Final = ("good", "column", "parse", "embed", "chunks", "gone")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), _READERS, st.sampled_from(_WAYS), st.booleans()), max_size=12))
def test_whatever_comes_after_what_who_finds_a_text_was_never_shut_out_of_it_since(
    steps: list[tuple[str, list[str], str, bool]],
) -> None:
    """And who always was let in finds it, if its readers could be told."""
    limits = Limits(max_line_bytes=1_900, max_chunks=20)
    with TemporaryDirectory() as folder:
        project = WithReaders(Path(folder), embedder=Refusing(16), limits=limits)
        #: Of each document the readers of the version whose text is indexed, and of those since.
        shown: dict[str, list[list[str]]] = {}
        for number, (name, readers, way, retry) in enumerate(steps):
            if way == "gone":
                (Path(folder) / f"{name}.md").unlink(missing_ok=True)
                shown.pop(name, None)
            else:
                text = {"parse": "\0", "embed": "poison", "chunks": "Some words of a text. " * 60}.get(way, "")
                due = "soon" if way == "column" else f"2024-01-{number + 1:02}"
                project.write(f"[{', '.join(readers)}]", name=f"{name}.md", more=f"due: {due}\n", body=f"{text} {BODY}")
                told = [] if way == "parse" else readers
                shown[name] = [told] if way == "good" else [*shown.get(name, []), told]
                if way != "good" and not any(each.endswith(f"/{name}.md") for each in project.manifest):
                    shown.pop(name)
            project.sync(project.changes(retry=retry))
            for document in "ab":
                found = project.readers(f"{document}.md")
                for asked in ("alice", "bob", "carol"):
                    lets_in = [may_read(each, [asked]) for each in shown.get(document, [[]])]
                    assert may_read(found or [], [asked]) is all(lets_in), (document, asked, found, shown)

"""What a target promises to those who search it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from instep.domain.identity import content_hash
from instep.errors import UserError
from instep.targets.document_target import DocumentTarget
from tests.contracts.target_rows import DIMENSIONS, OnOneIndex, put, rows_of, vector_of

#: Queries that users may type, with and without bad intent.
TYPED = [
    "", "   ", "'", '"', "don't", '"cat', "cat AND (", "'; DROP TABLE rows; --", "*", "cat~2^", "text:cat", "\0",
    "\\", "%_", "😀", "\u202e", "a" * 100_000, "cat " * 5_000, "NOT", "-cat", "$1 {} []",
]  # fmt: skip


class SearchingContract(OnOneIndex):
    #: What upkeep has done before rows are looked for; all alike where it makes no index of words or rows.
    upkeep: tuple[str, ...] = ("indexed", "not indexed", "half indexed")

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "library" in metafunc.fixturenames:
            metafunc.parametrize("library", self.upkeep, indirect=True)

    @pytest.fixture
    def library(self, request: pytest.FixtureRequest, target: DocumentTarget, index: str) -> str:
        documents = {
            "cats": ["The cat sat on the mat.", "Cats sleep all day; sleeping is what they do."],
            "dogs": ["A dog barks at night.", "Dogs run in the park."],
            "quotes": ['She said "don\'t" -- and left; DROP TABLE rows.'],
            "unicode": ["Crème brûlée in Zürich", "数据 索引 同步"],
        }
        first, second = dict(list(documents.items())[:2]), dict(list(documents.items())[2:])
        put(target, index, first, epoch=1, attempt="1")
        if request.param != "not indexed":
            target.maintain(index)
        put(target, index, second, epoch=2, attempt="2")
        if request.param == "indexed":
            target.maintain(index, full=True)
        return index

    def found(self, target: DocumentTarget, physical: str, text: str, mode: Any = "text", limit: int = 10) -> list[str]:
        hits = target.search(physical, entity="D", text=text, vector=vector_of(text), mode=mode, limit=limit)
        assert len(hits) <= limit
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert all(hit.entity == "D" for hit in hits)
        return [hit.text for hit in hits]

    def test_text_search_finds_words(self, target: DocumentTarget, library: str) -> None:
        assert self.found(target, library, "barks")[0] == "A dog barks at night."
        assert self.found(target, library, "MAT")[0] == "The cat sat on the mat."
        assert self.found(target, library, "zurich creme") == ["Crème brûlée in Zürich"]
        assert self.found(target, library, "数据") == ["数据 索引 同步"]
        assert self.found(target, library, "absentword") == []

    def test_the_parts_of_names_and_paths_are_words(self, target: DocumentTarget, index: str) -> None:
        texts = {
            "call": "It calls _ctypes.LoadLibrary in time.",
            "class": "Make a com.zaxxer.hikari.HikariDataSource of it.",
            "url": "See https://docs.example.org/guide/frobnicate.html?quux=plugh#xyzzy for more.",
            "path": r"It is in /var/lib/zorgblatt_cache.db or C:\Users\grault\fred.ini then.",
            "code": "<waldo thud='x'>snake_case_garply</waldo> a->corge, b::plover [flob] 50%off",
            "mail": "Ask wibble@wobble.example, or v1.22-rc7+wubble.",
        }
        words = {
            "call": ["ctypes", "LoadLibrary", "_ctypes.LoadLibrary", "ctypes.LoadLibrary"],
            "class": ["zaxxer", "HikariDataSource", "hikari.HikariDataSource", "com.zaxxer.hikari.HikariDataSource"],
            "url": ["frobnicate", "quux", "plugh", "xyzzy", "docs.example.org/guide", "frobnicate.html"],
            "path": ["zorgblatt", "cache", "zorgblatt_cache.db", "grault", "fred", r"C:\Users\grault"],
            "code": ["waldo", "thud", "garply", "snake_case_garply", "corge", "plover", "flob", "a->corge"],
            "mail": ["wibble", "wobble", "wibble@wobble.example", "rc7", "wubble"],
        }
        put(target, index, {name: [text] for name, text in texts.items()}, epoch=1, attempt="1")
        for _ in range(2):
            for name, asked in words.items():
                for word in asked:
                    assert self.found(target, index, word)[:1] == [texts[name]], word
            target.maintain(index, full=True)

    def test_titles_are_searched_beside_texts(self, target: DocumentTarget, index: str) -> None:
        """Whatever upkeep has been done; a row whose title and text both have the words comes first."""
        titles = {"a": "Zebra handbook", "b": None, "c": "Zürich's lions", "d": "Zebra stripes"}
        texts = {"a": ["Hooves."], "b": ["Of a zebra and stripes."], "c": ["Manes."], "d": ["Of a zebra and stripes."]}
        for epoch, upkeep in enumerate(("none", "some", "full"), start=1):
            put(target, index, texts, epoch=epoch, attempt=str(epoch), titles=titles)
            if upkeep != "none":
                target.maintain(index, full=upkeep == "full")
            assert self.found(target, index, "handbook") == ["Hooves."], upkeep
            assert self.found(target, index, "zurich lions") == ["Manes."]
            assert sorted(self.found(target, index, "zebra")) == sorted(["Hooves.", *texts["b"], *texts["d"]])
            hits = target.search(index, entity="D", text="zebra stripes", vector=None, mode="text", limit=1)
            assert [hit.document_id for hit in hits] == ["d"]
            assert self.found(target, index, "handbook", "hybrid")[0] == "Hooves."
        changed = {**titles, "a": "Lion manual"}
        put(target, index, texts, epoch=9, attempt="9", titles=changed)
        assert self.found(target, index, "handbook") == []
        assert self.found(target, index, "manual") == ["Hooves."]

    @pytest.mark.parametrize(
        "title",
        ["", " ", "'; DROP TABLE rows; --", "\u202e😀 %s {} \\ $1", "line\nbreak\ttab\x01", "x" * 70_000, "a\0b"],
    )
    def test_any_title_is_stored_or_reported_as_unfit(self, target: DocumentTarget, index: str, title: str) -> None:
        titles, base = {"a": title}, target.fence(index, 1)
        rows = rows_of({"a": ["text of a"], "b": ["text of b"]}, titles=titles)
        flaws = target.writer(index, base).unfit(pa.Table.from_batches([rows]))
        assert flaws.keys() <= {0}
        texts = {"b": ["text of b"]} if flaws else {"a": ["text of a"], "b": ["text of b"]}
        put(target, index, texts, epoch=2, attempt="1", titles=titles)
        target.maintain(index)
        assert sorted(self.found(target, index, "text")) == sorted(each[0] for each in texts.values())
        for name in texts:
            found = target.row(index, name)
            assert found is not None
            assert found.title == titles.get(name)

    def test_vector_search_finds_the_nearest(self, target: DocumentTarget, library: str) -> None:
        for text in ("Dogs run in the park.", "数据 索引 同步"):
            assert self.found(target, library, text, "vector", 1) == [text]
        assert len(self.found(target, library, "x", "vector", 100)) == 7

    def test_hybrid_search_ranks_hits_of_both_first(self, target: DocumentTarget, library: str) -> None:
        assert self.found(target, library, "A dog barks at night.", "hybrid")[0] == "A dog barks at night."
        assert len(self.found(target, library, "absentword", "hybrid", 3)) == 3

    def test_hybrid_search_finds_the_hits_of_text_and_of_vectors(self, target: DocumentTarget, library: str) -> None:
        """The query has a word of one row, and the vector of another one that has none of its words."""
        word, meaning = "A dog barks at night.", "数据 索引 同步"
        hits = target.search(library, entity="D", text="barks", vector=vector_of(meaning), mode="hybrid", limit=3)
        assert [hit.text for hit in hits[:2]] == [word, meaning], "what both lists have comes before what one has"
        assert hits[0].score > hits[1].score > hits[2].score
        again = target.search(library, entity="D", text="zürich", vector=vector_of(word), mode="hybrid", limit=2)
        assert [hit.text for hit in again] == ["Crème brûlée in Zürich", word]

    def test_hits_say_where_they_come_from(self, target: DocumentTarget, library: str) -> None:
        (hit,) = target.search(library, entity="D", text="sleeping", vector=None, mode="text", limit=1)
        assert (hit.document_id, hit.chunk_index, hit.title, hit.source_uri) == ("cats", 1, "cats", "file:///cats")
        assert hit.chunk_id == content_hash(b"cats|1")

    @pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
    def test_typed_queries_are_data(self, target: DocumentTarget, index: str, mode: Any) -> None:
        put(target, index, {"cats": ["The cat sat."]}, epoch=1, attempt="1")
        target.maintain(index)
        for text in TYPED:
            assert set(self.found(target, index, text, mode)) <= {"The cat sat."}, text

    def test_searching_an_empty_index(self, target: DocumentTarget, index: str) -> None:
        for mode in ("text", "vector", "hybrid"):
            assert self.found(target, index, "cat", mode) == []
        target.maintain(index)
        assert self.found(target, index, "cat", "hybrid") == []

    def test_limits(self, target: DocumentTarget, library: str) -> None:
        assert self.found(target, library, "cat", "hybrid", 0) == []
        assert len(self.found(target, library, "cat dog", "hybrid", 2)) == 2
        assert len(self.found(target, library, "cat dog", "hybrid", 10**9)) == 7

    def test_vectors_that_cannot_be_searched_for(self, target: DocumentTarget, library: str) -> None:
        for vector in (None, [1.0], [float("nan")] * DIMENSIONS):
            with pytest.raises(UserError):
                target.search(library, entity="D", text="cat", vector=vector, mode="vector", limit=1)
        assert target.search(library, entity="D", text="", vector=[0.0] * DIMENSIONS, mode="vector", limit=1) == []

    def test_a_row_is_found_by_its_chunk_or_its_document(self, target: DocumentTarget, library: str) -> None:
        second = target.row(library, content_hash(b"quotes|0"))
        assert second is not None
        assert (second.document_id, second.chunk_index, second.source_uri) == ("quotes", 0, "file:///quotes")
        assert (second.ref, second.instance, second.version) == ("Document@global", "i", 2)
        chunk = target.row(library, content_hash(b"cats|1"))
        assert chunk is not None
        assert (chunk.chunk_index, chunk.title, chunk.source_version, chunk.version) == (1, "cats", "1", 1)
        assert chunk.chunk_hash == content_hash(b"Cats sleep all day; sleeping is what they do.")
        first = target.row(library, "cats")
        assert first is not None
        assert (first.chunk_id, first.document_hash) == (content_hash(b"cats|0"), chunk.document_hash)

    def test_an_unknown_id_finds_no_row(self, target: DocumentTarget, library: str) -> None:
        for id in ("", "birds", "'", "x' OR '1' = '1", "cats' --", "\\", "%", "\0", "😀"):
            assert target.row(library, id) is None, id

    def test_a_row_is_found_as_it_is_now(self, target: DocumentTarget, index: str) -> None:
        """Whatever is done to it, and to the files and indexes that it lies in."""
        rows = {f"d{number}": [f"text {number}"] for number in range(40)}
        put(target, index, rows, epoch=1, attempt="1")
        target.maintain(index, full=True)
        for epoch in range(2, 6):
            changed = {f"d{number}": [f"text {number} of {epoch}"] for number in range(0, 30, epoch)}
            put(target, index, {**changed, f"d{30 + epoch}": []}, epoch=epoch, attempt=str(epoch))
            target.maintain(index, full=epoch % 2 == 0)
            for number in range(40):
                found = target.row(index, content_hash(f"d{number}|0".encode()))
                if 32 <= number <= 30 + epoch:
                    assert found is None
                else:
                    last = max([1, *(each for each in range(2, epoch + 1) if number < 30 and number % each == 0)])
                    assert found is not None
                    assert found.version == last

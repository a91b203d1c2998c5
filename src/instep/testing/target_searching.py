"""Promises of a target to those who search it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from instep.domain.identity import content_hash
from instep.domain.words import Searched, TextQuery, text_query
from instep.errors import UserError
from instep.targets.document_target import ChunkChanges, DocumentTarget, FusionWeights, row_schema
from instep.testing.rare_words import RARE
from instep.testing.target_rows import (
    BUCKETS,
    DIMENSIONS,
    NOTHING,
    OnOneIndex,
    put,
    rows_of,
    vector_of,
    with_words,
)

#: Queries that users may type, with and without bad intent.
TYPED = [
    "", "   ", "'", '"', "don't", '"cat', "cat AND (", "'; DROP TABLE rows; --", "*", "cat~2^", "text:cat", "\0",
    "\\", "%_", "😀", "\u202e", "a" * 100_000, "cat " * 5_000, "NOT", "-cat", "$1 {} []",
    '"cat sat"', '"' + "cat " * 5_000 + '"', '"" " "', '"\u2018cat\u2019 \\ %_"',
]  # fmt: skip


class SearchingContract(OnOneIndex):
    #: What upkeep has done before rows are looked for; all alike where it makes no index of words or rows.
    upkeep: tuple[str, ...] = ("indexed", "not indexed", "half indexed")
    #: Whether a word that a query says twice counts twice.
    counts_repeats: bool = True

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
        hits = target.search(
            physical, entity="D", text=text_query(text), vector=vector_of(text), mode=mode, limit=limit
        )
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

    def test_each_build_is_searched_and_read_by_itself(self, target: DocumentTarget, index: str) -> None:
        """Two builds of an entity hold the same documents, and chunks of the same id."""
        other = f"{index}2"
        target.create(other, DIMENSIONS, BUCKETS)
        builds = {index: {"a": ["the old tide"], "b": ["a cat"]}, other: {"a": ["the new tide"], "c": ["a dog"]}}
        for build, documents in builds.items():
            put(target, build, documents, epoch=1, attempt=f"of {build}")
        for full in (False, True):
            for build, documents in builds.items():
                texts = {text for each in documents.values() for text in each}
                assert self.found(target, build, "tide") == documents["a"]
                assert self.found(target, build, '"tide"') == documents["a"]
                assert {*self.found(target, build, "tide", "vector")} == texts
                assert {*self.found(target, build, "tide", "hybrid")} == texts
                assert target.rows(build) == 2
                assert (target.row(build, "b") is None, target.row(build, "c") is None) == (
                    build == other,
                    build == index,
                )
                assert {*target.written(build, ["a", "b", "c"])["text"].to_pylist()} == texts
                target.maintain(build, full=full)
        target.drop(other)
        assert self.found(target, index, "tide") == ["the old tide"]

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

    def test_every_rare_word_is_found_wherever_it_stands(self, target: DocumentTarget, index: str) -> None:
        """In names with dots and underscores, URLs, paths, code: each finds its own text, and no other."""
        put(target, index, {f"d{number}": [text] for number, (text, _) in enumerate(RARE)}, epoch=1, attempt="1")
        target.maintain(index)
        missed = [word for text, word in RARE if self.found(target, index, word) != [text]]
        assert not missed, f"{len(missed)} of {len(RARE)}"

    def test_a_word_that_a_query_says_twice_counts_more(self, target: DocumentTarget, index: str) -> None:
        texts = {"a": ["one lion"], "b": ["one puma"], **{f"c{number}": ["one goat"] for number in range(9)}}
        put(target, index, texts, epoch=1, attempt="1")
        target.maintain(index)
        lion, puma = (self.found(target, index, f"lion puma {each}") for each in ("lion", "puma"))
        assert sorted(lion) == sorted(puma) == ["one lion", "one puma"]
        if self.counts_repeats:
            assert (lion[0], puma[0]) == ("one lion", "one puma")

    @pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
    def test_pages_fit_together_where_many_hits_are_equal(self, target: DocumentTarget, index: str, mode: Any) -> None:
        """Half of the rows are alike, as tickets are: each page is asked for with all before it."""
        texts = {f"d{number}": ["printer on fire" if number % 2 else f"printer {number}"] for number in range(90)}
        put(target, index, texts, epoch=1, attempt="1")
        target.maintain(index, full=True)

        def first(limit: int) -> list[str]:
            query = "printer on fire"
            hits = target.search(
                index, entity="D", text=text_query(query), vector=vector_of(query), mode=mode, limit=limit
            )
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            return [hit.chunk_id for hit in hits]

        paged = [chunk for end in range(10, 90, 10) for chunk in first(end)[end - 10 :]]
        assert len(set(paged)) == 80, "no hit is on two pages"
        assert paged == first(80)

    def test_a_chunk_is_the_first_hit_of_its_own_vector(self, target: DocumentTarget) -> None:
        dimensions, count = 32, 300
        target.create("Near__1", dimensions, BUCKETS)
        vectors = np.random.default_rng(22).normal(size=(count, dimensions)).astype(np.float32)
        rows = rows_of({f"d{number}": [f"text {number}"] for number in range(count)}).to_pylist()
        named = [row | {"vector": vector} for row, vector in zip(rows, vectors.tolist(), strict=True)]
        base = target.fence("Near__1", 1)
        change = ChunkChanges(with_words(named, row_schema(dimensions)), NOTHING)
        staged = target.writer("Near__1", base).stage(iter([change]))
        target.commit("Near__1", base=base, epoch=1, attempt="1", staged=[staged], marks=[])
        target.maintain("Near__1", full=True)
        missed = []
        for number, vector in enumerate(vectors.tolist()):
            hits = target.search("Near__1", entity="D", text=TextQuery(), vector=vector, mode="vector", limit=10)
            assert hits[0].score_kind == "cosine"
            if hits[0].document_id != f"d{number}" or hits[0].score != pytest.approx(1, abs=1e-3):
                missed.append(number)
        assert not missed, f"{len(missed)} of {count}"

    def test_a_phrase_in_quotes_is_found_as_it_is(self, target: DocumentTarget, index: str) -> None:
        texts = {
            "both": "The printer is on fire; call the fire brigade.",
            "apart": "A fire on which no printer is.",
            "name": "It calls _ctypes.LoadLibrary, to be or not to be.",
            "chinese": "我们把数据库索引同步",
            "title": "Nothing at all.",
        }
        titles = {"title": "Printer is", "both": None, "apart": None, "name": None, "chinese": None}
        put(target, index, {name: [text] for name, text in texts.items()}, epoch=1, attempt="1", titles=titles)
        for _ in range(2):
            assert self.found(target, index, '"printer is on fire"') == [texts["both"]]
            assert self.found(target, index, "“Printers is ON fire” brigade") == [texts["both"]]
            assert self.found(target, index, '"fire printer"') == []
            assert self.found(target, index, '"ctypes.LoadLibrary"') == [texts["name"]]
            assert self.found(target, index, '"to be or not to be"') == [texts["name"]]
            assert self.found(target, index, '"数据库索引"') == [texts["chinese"]]
            assert self.found(target, index, '"索引数据库"') == []
            assert self.found(target, index, '"printer is nothing"') == [], "a phrase does not go on from title to text"
            assert self.found(target, index, '"printer is" "on fire"') == [texts["both"]]
            assert set(self.found(target, index, '"printer is"')) == {texts["both"], texts["apart"], texts["title"]}
            assert self.found(target, index, '"fire brigade"') == [texts["both"]]
            assert self.found(target, index, '"at all"') == [texts["title"]]
            assert set(self.found(target, index, 'brigade "fire on"')) == {texts["apart"]}
            assert self.found(target, index, '"printer is on fire"', "hybrid")[0] == texts["both"]
            target.maintain(index, full=True)

    def test_scripts_without_spaces_are_searched(self, target: DocumentTarget, index: str) -> None:
        texts = {
            "zh": "我们把数据库索引与来源保持同步。",
            "ja": "データベースの索引を同期する。東京都に住む猫",
            "ko": "데이터를 색인합니다",
            "th": "ฐานข้อมูลและดัชนี",
            "latin": "Only letters.",
        }
        put(target, index, {name: [text] for name, text in texts.items()}, epoch=1, attempt="1")
        asked = {"zh": ["数据库", "同步", "来"], "ja": ["東京", "猫", "データ"], "ko": ["데이터"], "th": ["ดัชนี"]}
        for _ in range(2):
            for name, words in asked.items():
                for word in words:
                    assert self.found(target, index, word)[:1] == [texts[name]], word
            target.maintain(index)

    def test_the_language_decides_what_is_one_word(self, target: DocumentTarget, index: str) -> None:
        german = Searched("german")
        rows = rows_of({"haus": ["Die Häuser der Straße"], "baum": ["Ein Baum"]}).to_pylist()
        base = target.fence(index, 1)
        change = ChunkChanges(with_words(rows, row_schema(DIMENSIONS), german), NOTHING)
        staged = target.writer(index, base).stage(iter([change]))
        target.commit(index, base=base, epoch=1, attempt="1", staged=[staged], marks=[])
        for typed, found in (("Haus", 1), ("hauses", 1), ("STRASSEN", 1), ("Bäume", 1), ("Hut", 0)):
            text = text_query(typed, "german")
            assert len(target.search(index, entity="D", text=text, vector=None, mode="text", limit=9)) == found, typed

    def test_words_of_a_title_count_as_often_as_it_says(self, target: DocumentTarget, index: str) -> None:
        heavy = Searched(weights=(("title", 8), ("text", 1)))
        texts = {"titled": ["Some words about other things."], "told": ["A zebra, a zebra and a zebra."]}
        titles = {"titled": "Zebra", "told": None}
        for attempt, (searched, first) in enumerate(((Searched(), "told"), (heavy, "titled"))):
            name = f"Weighed__{attempt}"
            target.create(name, DIMENSIONS, BUCKETS)
            base = target.fence(name, 1)
            rows = rows_of(texts, titles=titles).to_pylist()
            change = ChunkChanges(with_words(rows, row_schema(DIMENSIONS), searched), NOTHING)
            staged = target.writer(name, base).stage(iter([change]))
            target.commit(name, base=base, epoch=1, attempt="1", staged=[staged], marks=[])
            hits = target.search(name, entity="D", text=text_query("zebra"), vector=None, mode="text", limit=9)
            assert hits[0].document_id == first
            assert len(hits) == 2
            assert {each.score_kind for each in hits} <= {"bm25", "ts_rank"}

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
            hits = target.search(index, entity="D", text=text_query("zebra stripes"), vector=None, mode="text", limit=1)
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
        hits = target.search(
            library, entity="D", text=text_query("barks"), vector=vector_of(meaning), mode="hybrid", limit=3
        )
        assert [hit.text for hit in hits[:2]] == [word, meaning], "what both lists have comes before what one has"
        assert hits[0].score > hits[1].score > hits[2].score
        again = target.search(
            library, entity="D", text=text_query("zürich"), vector=vector_of(word), mode="hybrid", limit=2
        )
        assert [hit.text for hit in again] == ["Crème brûlée in Zürich", word]

    def test_what_weighs_more_comes_first_in_hybrid_search(self, target: DocumentTarget, library: str) -> None:
        """The query has the words of one row, and the vector of another."""
        word, meaning = "A dog barks at night.", "数据 索引 同步"
        for weights, best in ((FusionWeights(1, 0.01), word), (FusionWeights(0.01, 1), meaning)):
            hits = target.search(
                library,
                entity="D",
                text=text_query("barks"),
                vector=vector_of(meaning),
                mode="hybrid",
                limit=1,
                weights=weights,
            )
            assert [hit.text for hit in hits] == [best]

    def test_hits_say_where_they_come_from(self, target: DocumentTarget, library: str) -> None:
        (hit,) = target.search(library, entity="D", text=text_query("sleeping"), vector=None, mode="text", limit=1)
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
                target.search(library, entity="D", text=text_query("cat"), vector=vector, mode="vector", limit=1)
        assert (
            target.search(library, entity="D", text=text_query(""), vector=[0.0] * DIMENSIONS, mode="vector", limit=1)
            == []
        )

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

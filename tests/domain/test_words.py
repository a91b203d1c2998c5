"""What a word is."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.words import (
    LANGUAGES,
    LONGEST,
    PLAIN,
    Searched,
    TextQuery,
    language_of,
    marked,
    text_query,
    words_of,
)
from instep.pipeline.documents.words import searched_column


def words(text: str, language: str = PLAIN) -> list[str]:
    return words_of(text, language)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It calls _ctypes.LoadLibrary(x)", ["it", "calls", "ctypes", "loadlibrary", "x"]),
        ("https://example.org/a-b?c=d#e", ["https", "example", "org", "a", "b", "c", "d", "e"]),
        (r"C:\Users\me/snake_case", ["c", "users", "me", "snake", "case"]),
        ("don't don\u2019t", ["don", "t", "don", "t"]),
        ("Crème BRÛLÉE e\u0301", ["creme", "brulee", "e"]),
        ("Straße ﬁne ＡＢ½", ["strasse", "fine", "ab1", "2"]),
        ("\0\t\n \u2013 … 😀", []),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("数据库 Python编程 猫", ["数据", "据库", "python", "编程", "猫"]),
        ("x" * 100, ["x" * LONGEST]),
        ("é" * 100, ["e" * LONGEST]),
    ],
)
def test_the_words_of_a_text(text: str, found: list[str]) -> None:
    assert words(text) == found


def test_stems_are_those_of_the_language() -> None:
    assert words("printers printing", "english") == ["printer", "print"]
    assert words("Häuser Hauses", "german") == ["haus", "haus"]
    assert [words("Häuser", each) for each in (PLAIN, "english")] == [["hauser"], ["hauser"]]
    for each in LANGUAGES:
        assert words("word", each), each


@given(
    st.lists(st.text() | st.from_regex(r"[\w .,_/'-]{0,30}"), max_size=5), st.sampled_from([PLAIN, "english", "german"])
)
def test_a_column_has_the_words_that_are_looked_for(texts: list[str], language: str) -> None:
    """Every word of a text is found by that text; and none has what a store would take for something else."""
    rows = pa.table({"text": pa.array([None, *texts], pa.string())})
    empty, *found = searched_column(rows, Searched(language, (("text", 1),))).to_pylist()
    assert empty == ""
    for text, column in zip(texts, found, strict=True):
        assert column is not None
        assert set(words(text, language)) <= set(column.split(" ")), text
        assert column == " ".join(column.split())
        assert not set(column) & set("'\"\\%_:*?&|!<>()`")


@given(st.lists(st.from_regex(r"([0-9]{0,80}|[a-z0-9é]{1,9})( [0-9]{1,5})?", fullmatch=True), max_size=5))
def test_numbers_are_words_as_they_are_in_every_language(texts: list[str]) -> None:
    rows = pa.table({"text": pa.array(["7 100", *texts], pa.string())})
    for each in LANGUAGES:
        first, *found = searched_column(rows, Searched(each, (("text", 1),))).to_pylist()
        assert first == "7 100"
        assert found == [" ".join(words(text, each)) for text in texts], each


def test_a_name_with_underscores_has_the_words_of_its_parts() -> None:
    rows = pa.table({"text": ["__init__ first_names _ a_ 7_é_日本 x"]})
    assert searched_column(rows, Searched("english", (("text", 1),))).to_pylist() == [
        "init first name a 7 e 日本 日 本 x"
    ]


def test_what_is_searched_of_a_row() -> None:
    rows = pa.table({"title": [None, "On fire"], "text": ["a — b", ""], "tags": [["Red", "Blue x"], None]})
    some = Searched(PLAIN, (("title", 2), ("text", 1), ("tags", 1)))
    assert searched_column(rows, some).to_pylist() == [
        " ¶  ¶ a b ¶ red blue x",
        "on fire ¶ on fire ¶  ¶ ",
    ]
    assert searched_column(rows.slice(1), Searched(PLAIN)).to_pylist() == ["on fire ¶ on fire ¶ "]
    assert searched_column(rows.slice(0, 0), some).to_pylist() == []
    assert language_of(Searched("german").fingerprint) == "german"


@pytest.mark.parametrize(
    ("typed", "query"),
    [
        ("", TextQuery()),
        ("the printer is on fire", TextQuery(("printer", "fire"))),
        ("the", TextQuery(("the",))),
        ("fire, fire and smoke", TextQuery(("fire", "smoke", "fire"))),
        ('"on fire" the printer', TextQuery(("on", "fire", "printer"), (("on", "fire"),))),
        ('fire "', TextQuery(("fire",))),
        ('"" „a b”', TextQuery(("a", "b"), (("a", "b"),))),
        ('"数据库" 猫', TextQuery(("数据", "据库", "猫"), (("数据", "据库"),))),
        ('"Python编程 入门"', TextQuery(("python", "编程", "入门"), (("python",), ("编程",), ("入门",)))),
        ('"数据 猫 a b"', TextQuery(("数据", "猫", "a", "b"), (("数据",), ("猫",), ("a", "b")))),
    ],
)
def test_what_is_typed_is_looked_for(typed: str, query: TextQuery) -> None:
    assert text_query(typed) == query


def test_a_query_has_a_bound() -> None:
    found = text_query(" ".join(map(str, range(1000))) + ' "a b"' * 100)
    assert len(found.words) <= 64
    assert len(found.phrases) <= 8


def test_repetitions_push_no_word_out_of_a_query() -> None:
    found = text_query("error timeout server " * 100 + "postgres lag")
    assert {"error", "timeout", "server", "postgr", "lag"} == set(found.words)
    assert len(found.words) == 64


def test_the_words_of_a_text_are_marked() -> None:
    text = "The Printers of Zürich; 数据库"
    query = text_query("printer zurich 据库")
    found = marked(text, frozenset(query.words), "english")
    assert [text[each.start : each.end] for each in found] == ["Printers", "Zürich", "据库"]

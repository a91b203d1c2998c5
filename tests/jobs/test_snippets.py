"""Snippets: on one line, around the words of the query, marked where they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.answers.snippet import SNIPPET_CHARS, Snippet, snippet
from instep.domain.words import text_query


def of(text: str, query: str) -> Snippet:
    return snippet(text, text_query(query), "english")


@given(st.text(max_size=3000), st.text(max_size=50))
def test_marks_lie_inside_the_text_in_order_and_hold_words(text: str, query: str) -> None:
    found = of(text, query)
    assert len(found.text) <= SNIPPET_CHARS + 4
    assert "\n" not in found.text
    end = 0
    for start, stop in found.marks:
        assert end <= start < stop <= len(found.text)
        assert found.text[start:stop].strip()
        end = stop


def test_the_window_is_the_one_with_most_of_the_query() -> None:
    text = "moon " + "filler " * 200 + "the moon pulls the sea " + "filler " * 200
    found = of(text, "moon sea")
    assert "pulls the sea" in found.text
    assert [found.text[start:end] for start, end in found.marks] == ["moon", "sea"]


def test_other_forms_of_a_word_are_marked_too() -> None:
    found = of("It indexes documents. Indexing a document is quick.", "index document")
    assert [found.text[start:end].lower() for start, end in found.marks] == [
        "indexes",
        "documents",
        "indexing",
        "document",
    ]


def test_a_text_without_the_words_shows_its_beginning() -> None:
    found = of("alpha beta", "gamma")
    assert (found.text, found.marks) == ("alpha beta", ())


def test_marks_are_in_the_text_that_is_shown() -> None:
    found = of("lease one. " + "words " * 100 + "lease two.", "lease")
    assert len(found.text) < 400
    assert [found.text[start:end] for start, end in found.marks] == ["lease"]

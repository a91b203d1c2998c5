"""Chunking: sizes, overlap, nothing lost, large texts."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instep.pipeline.documents import chunk
from instep.pipeline.documents.chunk import PIECE, Chunker
from tests.documents.chunks import texts_of

WORDS = st.text(alphabet="ab \n#-é漢`>", max_size=2_000)


def test_markdown_is_cut_at_headings_and_text_at_paragraphs() -> None:
    sections = [f"# Part {number}\n\n" + "word " * 20 for number in range(3)]
    chunks = texts_of(Chunker(150), ("markdown", "\n".join(sections)))[0]
    assert [chunk.split("\n")[0] for chunk in chunks] == ["# Part 0", "# Part 1", "# Part 2"]
    assert texts_of(Chunker(12), ("text", "one two\n\nthree four")) == [["one two", "three four"]]


def test_texts_of_several_kinds_keep_their_places() -> None:
    texts = [("markdown", "# a"), ("text", ""), ("code", "x = 1"), ("markdown", " \n "), ("markdown", "# b")]
    assert texts_of(Chunker(), *texts) == [["# a"], [], ["x = 1"], [], ["# b"]]
    assert texts_of(Chunker()) == []


@given(st.lists(st.tuples(st.sampled_from(["markdown", "text"]), WORDS), max_size=4), st.integers(1, 50))
@settings(max_examples=60)
def test_nothing_but_white_space_is_lost_and_no_chunk_is_too_long(texts: list[tuple[str, str]], size: int) -> None:
    for (_, text), chunks in zip(texts, texts_of(Chunker(size), *texts), strict=True):
        assert all(0 < len(chunk) <= size for chunk in chunks)
        assert "".join("".join(chunks).split()) == "".join(text.split())


SHORT = st.lists(
    st.sampled_from(
        [*"ab .-!`>|", "\n", "\n\n", "\t", "\x1c", "\u2003", "é", "e\u0301", "漢", "# ", "```\n", "1. ", "* "]
    ),
    max_size=14,
).map("".join)


@given(SHORT, st.booleans(), st.sampled_from([0, 7]))
@settings(max_examples=400)
def test_a_text_that_fits_into_a_chunk_is_cut_as_its_splitter_cuts_it(text: str, markdown: bool, overlap: int) -> None:
    chunks = texts_of(Chunker(40, overlap), ("markdown" if markdown else "text", text))
    assert chunks == [chunk._splitter(chunk._Way("markdown" if markdown else "text", 40, overlap)).chunks(text)]


def test_overlap_repeats_the_end_of_the_chunk_before() -> None:
    text = " ".join(f"w{number}" for number in range(200))
    chunks = texts_of(Chunker(50, 20), ("text", text))[0]
    shared = [other.split()[0] in one.split() for one, other in itertools.pairwise(chunks)]
    # The splitter may leave it out where it would not fit.
    assert shared.count(True) > len(shared) / 2
    assert texts_of(Chunker(50, 0), ("text", text))[0] != chunks


@pytest.mark.parametrize(("size", "overlap"), [(10, 10), (10, 11), (10, -1), (0, 0)])
def test_overlap_must_be_less_than_the_size(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="overlap"):
        Chunker(size, overlap)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"line {number} of a long list" for number in range(100_000)),
        "lorem ipsum " * 80_000,
        "漢字" * 60_000,
        "x" * 300_000,
        "\n\n".join("para " * 50 for _ in range(4_000)),
    ],
    ids=["lines", "one line", "no spaces", "one word", "paragraphs"],
)
def test_large_texts_are_cut_piece_by_piece_and_lose_nothing(text: str) -> None:
    assert len(text) > PIECE
    (chunks,) = texts_of(Chunker(), ("markdown", text))
    assert max(map(len, chunks)) <= 800
    assert "".join("".join(chunks).split()) == "".join(text.split())
    assert [chunks] == texts_of(Chunker(), ("markdown", text))


def test_the_fingerprint_follows_the_settings() -> None:
    prints = {Chunker(*each).fingerprint for each in ((800, 0), (801, 0), (800, 1))}
    assert len(prints) == 3
    assert Chunker().fingerprint == Chunker(800, 0).fingerprint

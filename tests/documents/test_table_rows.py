"""CSV, TSV and tables in Markdown are cut by rows, each chunk with the header; the same rows are cut alike."""

from __future__ import annotations

import csv
import io
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from instep.pipeline.documents.chunk import Chunk, Chunker
from instep.pipeline.documents.embed.static import tokenizer_file
from instep.pipeline.documents.parse import FILE_PARSER, ParseFailure
from instep.pipeline.documents.tokens import Tokens

WORDS = ["tide", "moon", "ebb", "flood", "harbour", "salt", "reef", "buoy", "keel", "mast"]
HEADER = "id,name,height,note"
CELLS = st.text(alphabet='ab,;\t|"\n é漢', max_size=12)
STATIC = Tokens("static")


def cut(text: str, kind: str = "csv", size: int = 800, tokens: Tokens | None = None) -> list[Chunk]:
    (found,) = Chunker(size, tokens=tokens).cut([(kind, text)])
    assert not isinstance(found, ParseFailure)
    return found


def texts(text: str, kind: str = "csv", size: int = 800, tokens: Tokens | None = None) -> list[str]:
    return [each.text for each in cut(text, kind, size, tokens)]


def some_rows(count: int) -> list[str]:
    draw = random.Random(count)
    return [
        f'{at},"{draw.choice(WORDS)}",{draw.random():.4f},{" ".join(draw.choices(WORDS, k=draw.randint(1, 12)))}'
        for at in range(count)
    ]


def written(rows: list[list[str]], delimiter: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue()


def read(text: str, delimiter: str = ",") -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(text, newline="\n"), delimiter=delimiter) if any(row)]


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=30), st.sampled_from([",", "\t", ";"]))
@settings(max_examples=200)
def test_every_row_is_whole_in_one_chunk_and_the_header_in_all(rows: list[list[str]], delimiter: str) -> None:
    header = ["alpha", "beta", "gamma"]
    text = written([header, *rows], delimiter)
    found = [read(each, delimiter) for each in texts(text, "tsv" if delimiter == "\t" else "csv", 140)]
    assert all(each[0] == header for each in found)
    assert [row for each in found for row in each[1:]] == [row for row in rows if any(row)]


@given(st.text(alphabet='a,"\n;\t|', max_size=400), st.integers(1, 60), st.sampled_from(["csv", "tsv"]))
@settings(max_examples=300)
def test_whatever_a_file_has_in_it_no_chunk_is_too_long_and_nothing_is_lost(text: str, size: int, kind: str) -> None:
    found = texts(text, kind, size)
    assert all(0 < len(each) <= size for each in found)
    whole = iter("".join("".join(found).split()))
    assert all(letter in whole for letter in "".join(text.split())), "in their order, beside what is repeated"


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=40), st.integers(8, 40))
@settings(max_examples=40)
def test_no_chunk_has_more_tokens(tokenizer: Tokenizer, rows: list[list[str]], size: int) -> None:
    found = texts(written([["tide", "moon"], *rows]), "csv", size, STATIC)
    assert all(len(tokenizer.encode(each, add_special_tokens=False).ids) <= size for each in found)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(tokenizer_file()))


def test_rows_are_cut_alike_after_one_was_put_in_front() -> None:
    rows = some_rows(1_000)
    before = texts("\n".join([HEADER, *rows]))
    for at in (0, 1, 500, 999):
        after = texts("\n".join([HEADER, *rows[:at], '4711,"new",1.0,a row', *rows[at:]]))
        assert len(before) > 80
        assert len(set(before) - set(after)) <= 3, "chunks that are no more"


def test_rows_of_one_length_are_cut_alike_as_well() -> None:
    rows = [f"{at:06},{'x' * width}" for at in range(1_000) for width in [33]]
    for size in (90, 130, 200, 800):
        before = texts("\n".join(["id,text", *rows]), size=size)
        after = texts("\n".join(["id,text", "new,row", *rows]), size=size)
        assert len(set(before) - set(after)) <= max(4, len(before) // 50)


def test_rows_are_cut_alike_by_tokens() -> None:
    rows = some_rows(400)
    before = texts("\n".join([HEADER, *rows]), size=128, tokens=STATIC)
    after = texts("\n".join([HEADER, "4711,new,1.0,a row", *rows]), size=128, tokens=STATIC)
    assert len(set(before) - set(after)) <= len(before) // 20


def test_a_row_that_is_too_long_is_cut_as_text_with_the_header() -> None:
    long = "7," + "ebb and flood " * 40
    found = texts(f"id,note\n1,short\n{long}\n8,short\n", size=120)
    assert all(each.startswith("id,note\n") and len(each) <= 120 for each in found)
    assert found[0] == "id,note\n1,short"
    assert found[-1] == "id,note\n8,short"
    said = " ".join(each.removeprefix("id,note\n") for each in found[1:-1])
    assert said.split() == long.split()


def test_a_header_of_half_a_chunk_is_not_repeated() -> None:
    header = ",".join(f"column_{at}" for at in range(10))
    found = texts("\n".join([header, *(f"{at},a,b" for at in range(40))]), size=120)
    assert found[0].startswith("column_0,")
    assert sum("column_0" in each for each in found) == 1
    assert [row for each in found for row in each.split("\n")] == [header, *(f"{at},a,b" for at in range(40))]


def test_a_header_alone_and_an_empty_file() -> None:
    assert texts("id,name\n") == ["id,name"]
    assert texts("\n\n") == texts("") == []
    assert texts("\n".join("x" * 10 for _ in range(1)), size=4) == ["xxxx", "xxxx", "xx"]


def test_a_quote_that_is_not_closed_or_stands_within_a_field_is_a_letter() -> None:
    rows = [f'{at},{at}" pipe' for at in range(30)]
    for each in texts("\n".join(["id,name", *rows]), size=60):
        assert set(each.split("\n")[1:]) <= set(rows)
    found = texts("\n".join(["id,name", '1,"not closed', *rows]), size=60)
    assert found[0].startswith('id,name\n1,"not closed\n')
    assert found[-1].endswith('29,29" pipe')


def test_a_place_is_that_of_the_rows() -> None:
    text = "\n".join([HEADER, *some_rows(100)])
    first, *rest = cut(text)
    assert first.at == 0
    for chunk, at in rest:
        assert at is not None
        assert text[at:].startswith(chunk.removeprefix(HEADER + "\n"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one row of 10 MB", "a,b\n1," + "x y z " * 1_700_000 + "\n2,3\n"),
        ("one quoted row of 10 MB", 'a,b\n1,"' + "x y\nz " * 1_700_000 + '"\n2,3\n'),
        ("100,000 columns", "\n".join(",".join([each] * 100_000) for each in ("name", "1", "2"))),
        ("quotes", '"' * 2_000_000),
        ("empty quotes", "a,b\n" + '"",' * 500_000),
        ("quotes that open", 'a,b\n,"' + '""",' * 500_000),
        ("short rows", "a\n" + "1\n" * 500_000),
    ],
)
def test_odd_files_are_cut_in_linear_time(name: str, text: str) -> None:
    start = time.process_time()
    found = texts(text)
    assert time.process_time() - start < 20
    assert max(map(len, found)) <= 800
    assert found


def test_line_ends_and_marks_of_other_systems_are_those_of_rows() -> None:
    data = '\ufeffid,name\r\n1,"two\r\nlines"\r\n2,b\r\n'.encode()
    parsed = FILE_PARSER.parse(data, "file:///a.CSV", max_line_bytes=1_000_000, max_bytes=1_000_000)
    assert (parsed.kind, parsed.title) == ("csv", "a.CSV")
    assert texts(parsed.text, parsed.kind, 24) == ['id,name\n1,"two\nlines"', "id,name\n2,b"]
    with pytest.raises(ParseFailure, match="NUL"):
        FILE_PARSER.parse(b"id\n\0\n", "file:///a.csv", max_line_bytes=1_000_000, max_bytes=1_000_000)


def test_a_long_table_in_markdown_has_its_header_in_each_chunk_and_its_heading_in_the_first() -> None:
    head = "| port | level |\n| --- | ---: |\n"
    rows = [f"| {WORDS[at % 10]} {at} | {at}.5 |" for at in range(60)]
    text = "# Book\n\nintro\n\n## Levels\n\n" + head + "\n".join(rows) + "\n\nafter *it*\n"
    found = cut(text, "markdown", 300)
    assert found[0].text == "# Book\n\nintro"
    assert found[1].text.startswith("## Levels\n\n" + head + rows[0])
    assert all(each.text.startswith(head) for each in found[2:-1])
    assert found[-1].text == "after *it*"
    assert [row for each in found[1:-1] for row in each.text.split("\n") if row in rows] == rows
    assert all(text[each.at :].startswith(each.text.removeprefix(head)) for each in found if each.at)
    assert all(len(each.text) <= 300 for each in found)


def test_a_table_in_markdown_that_fits_stays_with_its_text() -> None:
    text = "# Book\n\n" + "word " * 30 + "\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n" + "word " * 100
    assert any("| a | b |\n| - | - |\n| 1 | 2 |" in each and "word" in each for each in texts(text, "markdown", 400))


@given(st.lists(st.sampled_from(["| a | b |", "| - | - |", "text", "", "# h", "|", "| c |  "]), max_size=60), st.data())
@settings(max_examples=200)
def test_nothing_of_markdown_is_lost_and_no_chunk_is_too_long(lines: list[str], data: st.DataObject) -> None:
    text, size = "\n".join(lines), data.draw(st.integers(1, 60))
    found = texts(text, "markdown", size)
    assert all(0 < len(each) <= size for each in found)
    whole = iter("".join("".join(found).split()))
    assert all(letter in whole for letter in "".join(text.split()))


def test_a_chunk_begins_where_its_first_row_does_behind_blank_lines() -> None:
    text = "\n\nh1,h2\n1,2" + "\n" * 10 + "3,4\n"
    first, second = cut(text, size=20)
    assert text[first.at or 0 :].startswith("h1,h2\n1,2")
    assert second.text == "h1,h2\n3,4"
    assert text[second.at or 0 :].startswith("3,4")

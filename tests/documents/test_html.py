"""HTML becomes Markdown: what it says in headings, lists, tables and code, and nothing that nobody sees."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.html import html_text
from instep.pipeline.documents.parse import FILE_PARSER, Parsed
from instep.pipeline.documents.places import headings_at, markdown_headings

MOST = 100_000_000


def parsed(page: str) -> Parsed:
    return FILE_PARSER.parse(page.encode(), "file:///f/a.html", max_line_bytes=MOST, max_bytes=MOST)


def markdown(page: str) -> str:
    return html_text(page)[1]


def table(*rows: str) -> str:
    return "<table>" + "".join(f"<tr><td>{row.replace('|', '<td>')}" for row in rows) + "</table>"


@pytest.mark.parametrize("start", ["<?xml version='1.0'?><html>", "<html xmlns='http://www.w3.org/1999/xhtml'>"])
@pytest.mark.parametrize("closed", ["<title/>", "<script src='x'/>", "<style/>", "<iframe src='x' />", "<textarea/>"])
def test_what_is_closed_at_once_in_xml_swallows_nothing(start: str, closed: str) -> None:
    assert markdown(f"{start}<body>{closed}<p>One.</p>{closed}<p>Two.</p></body></html>") == "One.\n\nTwo."


@pytest.mark.parametrize("first", ["<svg><title>icon</title></svg>", "<h1 hidden>menu</h1>"])
def test_a_picture_or_what_is_hidden_gives_a_page_no_title(first: str) -> None:
    assert html_text(f"<body>{first}<h1>Real</h1>")[0] == "Real"


def test_a_page_becomes_markdown_with_its_title() -> None:
    found = parsed(
        """<!doctype html><title> The  page </title><style>p {color: red}</style>
        <body><h1>Head</h1><p>One <b>bold</b>
        word and a <a href="https://e.org/x">link</a>.</p><script>alert(1)</script>
        <ul><li>a</li><li>b</li></ul>a &lt; b<br>next line</body>"""
    )
    text = "# Head\n\nOne bold word and a link.\n\n- a\n- b\n\na < b\nnext line"
    assert found == Parsed("markdown", "The page", text)
    assert parsed("<h1>Only</h1>") == Parsed("markdown", "Only", "# Only")


def test_headings_are_those_of_the_page_each_on_one_line() -> None:
    text = markdown(
        "<body><h1>Tides <em>of</em>\n Brest</h1><p>a</p><div><h2>Neap<br>tide</h2>b</div><h3></h3>"
        "<h2><div>Spring<h4>tide</h4></div></h2>c<pre># code\n  <b>h</b></pre><ul><li><h6>Ebb</h6>d</ul>"
    )
    assert text == (
        "# Tides of Brest\n\na\n\n## Neap tide\n\nb\n\n## Spring tide\n\nc\n\n```\n# code\n  h\n```\n\n"
        "###### Ebb\n\n- d"
    )
    assert [each.text for each in markdown_headings(text)] == ["Tides of Brest", "Neap tide", "Spring tide", "Ebb"]


@pytest.mark.parametrize("line", ["# apt install", "```", "~~~ no code", "###", "Tides<br>-----", "Tides<br>==="])
def test_no_text_of_a_page_makes_a_heading_or_the_edge_of_code(line: str) -> None:
    text = markdown(f"<p>{line}</p><h2>Neap</h2><p>b")
    assert [each.text for each in markdown_headings(text)] == ["Neap"]
    assert not list(markdown_headings(markdown(f"<ul><li>Tides<p>{line.rpartition('>')[2]}</ul>")))
    assert text.replace("\\", "") == f"{line.replace('<br>', chr(10))}\n\n## Neap\n\nb"


def test_lists_are_lists_within_each_other() -> None:
    text = markdown(
        "<p>Ports:</p><ul><li>Brest<ol start=3><li>low<li>high<p>twice a day</p></ol></li><li></li>"
        "<li><p>Hull<br>on the Humber</p></ul><li>alone<dl><dt>Neap<dd>low</dl>"
    )
    assert text == (
        "Ports:\n\n- Brest\n  3. low\n  4. high\n\n     twice a day\n- Hull\n  on the Humber\n- alone\n\nNeap\n\nlow"
    )


def test_lines_of_code_stay_between_fences_that_are_longer_than_any_in_it() -> None:
    text = markdown(
        "<p>As\n one line:</p><pre><code class=x>def f(x):\n    return  x\n\n\tpass<br>end</code></pre>after"
        "<textarea>\n a\n b</textarea><pre>````</pre><pre> </pre>"
        "<pre><div>x = 1</div><div>y = 2\n</div><br><table><tr><td>1<td>z = 3</table></pre>"
    )
    assert text == (
        "As one line:\n\n```\ndef f(x):\n    return  x\n\n\tpass\nend\n```\n\nafter\n\n```\n a\n b\n```\n\n"
        "`````\n````\n`````\n\n```\nx = 1\ny = 2\n\n1\nz = 3\n```"
    )


def test_a_table_is_one_of_markdown() -> None:
    text = markdown(
        "<table><caption>Levels</caption><thead><tr><th>port<th>low|high<th>unit</thead>"
        "<tr><td rowspan=2><a href=x>Brest</a><td>1.2<br>at <b>noon</b><td>m<tr><td colspan=2>3.4"
        "<tr><td> <td><td></td></tr><tr><td>Hull<td><ul><li>5<li>6</ul><td>-</table>after"
    )
    assert text == (
        "Levels\n\n| port | low\\|high | unit |\n| --- | --- | --- |\n| Brest | 1.2 at noon | m |\n| Brest | 3.4 |  |\n"
        "| Hull | - 5 - 6 | - |\n\nafter"
    )


def test_a_long_table_is_cut_between_rows_each_chunk_with_the_header_and_under_its_heading() -> None:
    rows = [f"port {each}|{each}.5 m" for each in range(300)]
    found = parsed("<h1>Tides</h1><h2>Levels</h2>" + table("port|level", *rows) + "<p>after</p>")
    chunks = Chunker(size=400).cut([(found.kind, found.text)])[0]
    assert not isinstance(chunks, Exception)
    assert len(chunks) > 10
    of_table = [each for each in chunks if "| port 1" in each.text]
    assert all("| port | level |\n| --- | --- |\n" in each.text for each in of_table)
    for row in rows:
        assert sum(f"| {row.replace('|', ' | ')} |" in each.text for each in chunks) == 1
    headings = headings_at(Chunker().headings(found), [each.at for each in of_table])
    assert headings == [["Tides", "Levels"]] * len(of_table)


@pytest.mark.parametrize(
    "page",
    [
        "<table><tr><td>menu<td><h2>Neap</h2>words</table>",
        table("menu|words", "more|<pre>code</pre>"),
        table("menu|words", "foot|" + "long " * 300),
        table("a row|alone"),
        table("a column", "alone"),
        "<table><tr><td>menu<td>" + table("port|level", "Brest|7.1") + "<tr><td>a<td>b</table>",
    ],
)
def test_a_table_that_only_arranges_a_page_is_read_cell_by_cell(page: str) -> None:
    lines = markdown(page).split("\n")
    first = "a row" if "a row" in page else "a column" if "a column" in page else "menu"
    assert lines[0] == first
    inner = ["| port | level |", "| --- | --- |", "| Brest | 7.1 |"] if "port" in page else []
    assert [each for each in lines if each.startswith("|")] == inner


def test_what_nobody_sees_is_no_text() -> None:
    unseen = (
        "<script>a</script><style>b</style><template>c</template><noscript>d</noscript><iframe>e</iframe><!-- f -->"
        '<p hidden>g<p style="color:red;Display:none">h</p><div style="display: none"><p hidden>i</p><h2>j</h2></div>'
    )
    assert markdown(f"<p>seen</p>{unseen}<p>too") == "seen\n\ntoo"
    assert markdown('<body style="display:none" hidden>shown by a script') == "shown by a script"


def test_every_word_that_is_seen_stays_in_its_order_whatever_is_in_what() -> None:
    blocks = ["div", "p", "ul><li", "ol><li", "h2", "table><tr><td", "pre", "td", "tr", "caption", "li", "section", "b"]
    for outer in blocks:
        for middle in blocks:
            for inner in blocks:
                page = f"w1 <{outer}>w2 <{middle}>w3 <{inner}>w4</{inner.split('>')[0]}> w5</{middle.split('>')[0]}> w6"
                words = {f"w{each}" for each in range(1, 7)}
                assert words <= set(markdown(page).replace("|", " ").split()), page


def test_what_is_in_many_tables_is_not_copied_from_each_to_the_next() -> None:
    began = time.process_time()
    assert markdown("<table><tr><td>" * 3_000 + "<p>x" * 100_000).count("x") == 100_000
    assert time.process_time() - began < 4


@pytest.mark.parametrize("tag", ["div", "ul><li", "ol><li><p", "blockquote", "span", "table><tr><td", "h1><div", "pre"])
def test_a_page_that_is_nested_deeply_loses_nothing(tag: str) -> None:
    assert "deep" in markdown(f"<{tag}>" * 3_000 + "deep")


@pytest.mark.parametrize(
    "page",
    [
        "<table><tr>" + "<td rowspan=60000>" + "word " * 100 + ("<td rowspan=60000>x" * 1_000) + "<tr>" * 4_000,
        "<table>" + "<tr><td colspan=60000>x<td>y" * 3_000,
        "<ul>" * 300 + "<li>x<br>y" * 8_000,
        "<table><tr>" + "<td>x" * 9_000 + "<tr><td>x" * 4_000,
        "<table><tr><td>h<td>k<tr><td colspan=33333>x<td>x</table>" * 1_000,
    ],
)
def test_a_page_does_not_become_much_more_than_it_is(page: str) -> None:
    tracemalloc.start()
    began = time.process_time()
    text = markdown(page)
    assert time.process_time() - began < 20
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert text.count("x") > 1_000
    assert len(text) < 20 * len(page) + 200_000
    assert peak < 100_000_000


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>Hello</p><?php echo 1 ?><p>world</p>", "Hello\n\nworld"),
        ("<h1>A<?x?>b</h1><pre>c<?x?>d</pre>", "# Ab\n\n```\ncd\n```"),
        ("<table><?x?><tr><td>a<?x?><td>b<tr><td>c<td>d</table>", "| a | b |\n| --- | --- |\n| c | d |"),
    ],
)
def test_instructions_for_a_server_that_were_left_in_are_no_text(page: str, text: str) -> None:
    assert markdown(page) == text


def test_a_cell_that_reaches_over_more_columns_than_there_are_adds_none() -> None:
    page = '<table><tr><td>a<td>b<tr><td colspan="100%">note</table>'
    assert markdown(page) == "| a | b |\n| --- | --- |\n| note |  |"


def test_items_have_the_numbers_that_the_page_says() -> None:
    assert markdown('<ol start="3"><li>c<li value="7">g<li>h</ol>') == "3. c\n7. g\n8. h"
    assert markdown('<ol start="0"><li>a<li>b</ol>') == "0. a\n1. b"
    assert markdown('<ol><li value="0">a<li>b<ol start="0"><li>c<br>d</ol></ol>') == "0. a\n1. b\n   0. c\n      d"


def test_what_a_search_in_the_page_would_open_is_text() -> None:
    assert markdown('<p hidden="until-found">seen</p><p hidden>unseen</p>') == "seen"

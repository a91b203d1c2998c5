"""HTML as Markdown: headings, lists, tables and code as Markdown has them, and the text of all else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

#: What nobody sees; the contents of frames are for browsers without them.
_UNSEEN: Final = ("script", "style", "template", "noscript", "head", "iframe", "noembed", "noframes")
#: A page that says so in its beginning is XML, where any element may be closed at once. To a parser of HTML, what is in
#: these goes on to their end, or that of the page.
_XHTML: Final = re.compile(r"<\?xml\b|http://www\.w3\.org/1999/xhtml")
_HEAD: Final = 1_000
_CLOSED: Final = re.compile(r"<(script|style|title|iframe|textarea|noscript|noembed|noframes|template|xmp)\b([^<>]*)/>")
_HIDDEN: Final = '[hidden]:not([hidden="until-found" i]), [style*="display:none" i], [style*="display: none" i]'
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_LISTS: Final = frozenset(("ul", "ol", "menu"))
_CELLS: Final = frozenset(("td", "th"))
#: A processing instruction, such as one of PHP, has no tag.
_INSTRUCTION: Final = "-instruction"
#: Lines and indentation are what these are for.
_KEPT: Final = frozenset(("pre", "textarea", "listing", "xmp", "plaintext"))
_WHOLE: Final = frozenset((*_HEADINGS, *_KEPT))
_SECTIONS: Final = (
    *("address", "article", "aside", "blockquote", "details", "dialog", "div", "dl", "fieldset", "figcaption"),
    *("figure", "footer", "form", "header", "hgroup", "hr", "legend", "main", "nav", "search", "section", "summary"),
)
_BLOCKS: Final = frozenset(
    (
        *(*_WHOLE, *_LISTS, *_CELLS, *_SECTIONS),
        *("li", "table", "tr", "caption", "dd", "dt", "option", "optgroup", "p"),
    )
)
#: A line that begins in this way would be a heading or the edge of code; one that is this would make the line before
#: a heading.
_MARK: Final = re.compile(r"#{1,6}(?=\s|\Z)|`{3}|~{3}")
_UNDERLINE: Final = re.compile(r"(?:=+|-+)\Z")
#: A list that is nested more deeply is not indented further.
_DEEPEST: Final = 8
#: A table with more characters in a cell is for the layout of a page.
_LONGEST_CELL: Final = 1_000
#: So many characters are written at most to fill up the cells of one table that reach over others.
_TO_FILL_UP: Final = 100_000


def html_text(text: str) -> tuple[str, str]:
    """The title of a page, and its text in Markdown. The time is linear in the number of its tags, but for the parser,
    whose time grows with the square of their depth.
    """
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError

    if _XHTML.search(text, 0, _HEAD):
        text = _CLOSED.sub(r"<\1\2></\1>", text)
    try:
        tree = LexborHTMLParser(text)
    except SelectolaxError as error:  # It takes anything for a page, as long as there is memory.
        raise MemoryError(str(error)) from None
    named = tree.css_first("head > title")
    title = named.text(separator=" ") if named else ""
    tree.strip_tags(list(_UNSEEN))
    body = tree.body
    if body is None:
        return title, ""
    for node in tree.css(_HIDDEN):
        if node.tag not in ("html", "body"):  # Those are shown by a script.
            node.decompose(recursive=False)
    if not title and (headed := tree.css_first("h1")):
        title = headed.text(separator=" ")
    return title, _written(body)


def _written(body: Any) -> str:
    """Walk through the tree without recursion: pages are nested as deeply as they like."""
    page = _Page()
    node, depth = body.child, 0
    while node is not None:
        inside = node.child if page.enter(node) else None
        if inside is not None:
            node, depth = inside, depth + 1
            continue
        page.leave(node)
        while node.next is None and depth:
            node, depth = node.parent, depth - 1
            page.leave(node)
        node = node.next
    return page.text()


class _Block(NamedTuple):
    """A paragraph, a heading, a table, or a piece of code. The first one of an item of a list has its mark."""

    text: str
    in_list: bool = False
    is_item: bool = False


#: Blocks in their order. Those of a table are a list of their own in it: nobody copies them from table to table.
_Blocks: TypeAlias = "list[_Block | _Blocks]"


def _each_of(blocks: _Blocks) -> Iterator[_Block]:
    """The blocks themselves, however deep they are."""
    open_ = [iter(blocks)]
    while open_:
        found = next(open_[-1], None)
        if found is None:
            open_.pop()
        elif isinstance(found, list):
            open_.append(iter(found))
        else:
            yield found


@dataclass(slots=True)
class _Cell:
    blocks: _Blocks
    columns: int
    rows: int

    @property
    def text(self) -> str:
        """The text on one line, as a cell of Markdown."""
        said = " ".join(each.text for each in _each_of(self.blocks))
        return " ".join(said.split()).replace("|", "\\|")


@dataclass(slots=True)
class _Table:
    """A table that is open: its caption and its rows, and what is around it: blocks, lists, the mark of an item."""

    around: tuple[_Blocks, list[int | None], str]
    caption: _Blocks = field(default_factory=list)
    rows: list[list[_Cell]] = field(default_factory=list)
    is_layout: bool = False

    def blocks(self) -> Iterator[_Block | _Blocks]:
        """One table of Markdown, or the blocks in its cells one after the other."""
        yield self.caption
        cells = [cell for row in self.rows for cell in row]
        rows = [] if self.is_layout or any(_length(each) > _LONGEST_CELL for each in cells) else self._texts()
        columns = max(map(len, rows), default=0)
        if len(rows) < 2 or columns < 2:
            for each in cells:
                yield each.blocks
            return
        header = rows[0] + [""] * (columns - len(rows[0]))
        yield _Block("\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * columns, *rows[1:])))

    def _texts(self) -> list[list[str]]:
        """The rows that say something. What is in a cell of several rows is in each of them."""
        left = _TO_FILL_UP
        # Pages write `colspan="100%"` for as many columns as there are.
        widest = max(map(len, self.rows), default=0)
        open_: dict[int, tuple[int, str]] = {}
        found = []
        for row in self.rows:
            made: list[str] = []
            for cell in [*row, None]:
                while len(made) in open_ and left > 0:
                    rows, text = open_.pop(len(made))
                    if rows > 1:
                        open_[len(made)] = rows - 1, text
                    made.append(text)
                    left -= len(text) + 3
                if cell is None:
                    continue
                if cell.rows > 1:
                    open_[len(made)] = cell.rows - 1, cell.text
                over = max(0, min(cell.columns - 1, widest - len(made) - 1, left))
                made += [cell.text, *[""] * over]
                left -= 3 * over
            if any(made):
                found.append(made)
        return found


def _length(cell: _Cell) -> int:
    return sum(len(each.text) for each in _each_of(cell.blocks))


class _Page:
    """Writes a page while its tree is walked through."""

    def __init__(self) -> None:
        self._blocks: _Blocks = []
        self._lines: list[list[str]] = [[]]
        #: The tag of the heading or the code that is open, and how many are, in each other.
        self._whole, self._deep = "", 0
        #: Of each open list the number of its next item; None where they have none.
        self._lists: list[int | None] = []
        self._mark = ""
        self._tables: list[_Table] = []

    def text(self) -> str:
        self._end_block()
        made: list[str] = []
        before = _Block("")
        for each in _each_of(self._blocks):
            tight = each.is_item and before.in_list
            made += [("\n" if tight else "\n\n") if made else "", each.text]
            before = each
        return "".join(made)

    def enter(self, node: Any) -> bool:
        """Whether what is in it is wanted."""
        tag = node.tag or _INSTRUCTION
        if tag == "-text":
            self._lines[-1].append(node.text_content or "")
        elif self._deep:
            self._deep += tag in _WHOLE
            self._end_line(tag)
            self._lines[-1] += ["\n"] * (tag == "br")
        elif tag == "br":
            self._lines.append([])
        elif tag in _BLOCKS:
            self._end_block()
            if tag in _WHOLE:
                self._deep, self._whole = 1, tag
            else:
                self._open(tag, node)
        return not tag.startswith("-")

    def leave(self, node: Any) -> None:
        tag = node.tag or _INSTRUCTION
        if self._deep:
            self._deep -= tag in _WHOLE
            if self._deep:
                self._end_line(tag)
            else:
                self._end_whole()
        elif tag in _BLOCKS:
            self._end_block()
            self._close(tag)

    def _end_line(self, tag: str) -> None:
        """End the line at the edge of a block in code; in a heading, this becomes a space."""
        line = self._lines[-1]
        if tag in _BLOCKS and line and not line[-1].endswith("\n"):
            line.append("\n")

    def _end_whole(self) -> None:
        """The end of a heading, or of code. It stands at the left, and not in a table."""
        if self._whole in _KEPT:
            lines, self._lines = self._lines, [[]]
            said = _code("".join(lines[0]))
        else:
            said = " ".join(self._taken())
            said = f"{'#' * _HEADINGS[self._whole]} {said}" if said else ""
        if said:
            self._blocks.append(_Block(said))
            if self._tables:
                self._tables[-1].is_layout = True

    def _open(self, tag: str, node: Any) -> None:
        if tag in _LISTS:
            self._lists.append(_number(node, "start") if tag == "ol" else None)
        elif tag == "li":
            number = self._lists[-1] if self._lists else None
            self._mark = "- "
            if number is not None:
                number = _number(node, "value") if "value" in node.attributes else number
                self._mark = f"{number}. "
                self._lists[-1] = number + 1
        elif tag == "table":
            if self._tables:
                self._tables[-1].is_layout = True
            self._tables.append(_Table((self._blocks, self._lists, self._mark)))
            self._blocks, self._lists, self._mark = self._tables[-1].caption, [], ""
        elif tag == "tr" and self._tables:
            self._tables[-1].rows.append([])
        elif tag in _CELLS and self._tables and self._tables[-1].rows:
            cell = _Cell([], _number(node, "colspan"), _number(node, "rowspan"))
            self._tables[-1].rows[-1].append(cell)
            self._blocks = cell.blocks

    def _close(self, tag: str) -> None:
        if tag in _LISTS:
            self._lists.pop()
        elif tag == "li":
            self._mark = ""
        elif tag in _CELLS and self._tables:
            self._blocks = self._tables[-1].caption
        elif tag == "table":
            table = self._tables.pop()
            self._blocks, self._lists, self._mark = table.around
            self._blocks += table.blocks()

    def _taken(self) -> list[str]:
        """The lines since the last block."""
        if self._lines == [[]]:
            return []
        lines, self._lines = self._lines, [[]]
        return [said for line in lines if (said := " ".join("".join(line).split()))]

    def _end_block(self) -> None:
        lines = self._taken()
        if not lines:
            return
        for at, line in enumerate(lines):
            if _MARK.match(line) or (at and _UNDERLINE.match(line)):
                lines[at] = f"\\{line}"
        outer = islice(self._lists, min(len(self._lists) - 1, _DEEPEST)) if self._lists else ()
        indent = "".join("  " if each is None else "   " for each in outer)
        inner = indent + " " * max(len(self._mark), 2 if not self._lists or self._lists[-1] is None else 3)
        inner = inner if self._lists or self._mark else ""
        first = (indent + self._mark if self._mark else inner) + lines[0]
        text = "\n".join([first, *(inner + each for each in lines[1:])])
        self._blocks.append(_Block(text, in_list=bool(inner), is_item=bool(self._mark)))
        self._mark = ""


def _code(text: str) -> str:
    """Lines as they are between two fences, which are longer than any in them."""
    text = text.strip("\n")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}" if text.strip() else ""


def _number(node: Any, name: str) -> int:
    """A number that an attribute says, or 1."""
    said = re.match(r"\s*(\d{1,5})", node.attributes.get(name) or "")
    return int(said[1]) if said else 1

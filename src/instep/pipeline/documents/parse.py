"""Bytes to text: Markdown (of HTML, too), reStructuredText, plain text, PDF, source code."""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import accumulate
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

from instep.domain.fingerprint import digest
from instep.pipeline.documents.places import joined_pages, markdown_headings

#: Raised whenever any document would be parsed differently.
PARSER_VERSION = "parser-6"
#: Titles are cut to this many characters.
TITLE = 300

_KINDS = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd", ".mdx"), "markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".rst", ".rest"), "rst"),
    **dict.fromkeys((".txt", ".text", ".log", ""), "text"),
    ".pdf": "pdf",
    ".csv": "csv",
    **dict.fromkeys((".tsv", ".tab"), "tsv"),
    **dict.fromkeys((".sh", ".bash"), "bash"),
    **dict.fromkeys((".c", ".h"), "c"),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hh", ".hpp"), "cpp"),
    ".cs": "csharp",
    ".go": "go",
    ".java": "java",
    **dict.fromkeys((".js", ".cjs", ".mjs", ".jsx"), "javascript"),
    ".php": "php",
    **dict.fromkeys((".py", ".pyi"), "python"),
    ".rb": "ruby",
    ".rs": "rust",
    **dict.fromkeys((".scala", ".sc"), "scala"),
    **dict.fromkeys((".ts", ".cts", ".mts"), "typescript"),
    ".tsx": "tsx",
    **dict.fromkeys((".kt", ".swift", ".sql", ".r", ".jl", ".lua", ".pl", ".css", ".json", ".yaml", ".yml"), "code"),
    **dict.fromkeys((".toml", ".ini", ".cfg", ".xml", ".proto", ".tf", ".gradle", ".cmake"), "code"),
}
#: What front matter may be, if it turns out to be any: YAML between `---`, TOML between `+++`. `---` above an
#: empty line is a rule, as in Pandoc.
_YAML = re.compile(r"\A---[ \t]*\n(?![ \t]*\n)(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_TOML = re.compile(r"\A\+\+\+[ \t]*\n(.*?)^\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_RULE = re.compile(r"([=\-`:.'\"~^_*+#])\1{2,}\Z")
#: Formats that need a library, by suffix, and what their files begin with: what begins otherwise is text.
FORMATS = {
    **dict.fromkeys((".docx", ".pptx", ".xlsx", ".odt", ".ods", ".odp", ".epub"), re.compile(rb"PK\x03\x04")),
    **dict.fromkeys((".doc", ".ppt", ".xls", ".msg"), re.compile(rb"\xd0\xcf\x11\xe0")),
}
#: Where texts name their character set: XML, HTML, and source code of Python and Ruby.
_XML_SAYS = re.compile(rb"\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([\w.:-]+)")
_HTML_SAYS = re.compile(rb"<meta[^>]+charset=[\"']?([\w.:-]+)", re.IGNORECASE)
_CODE_THAT_SAYS = frozenset({".py", ".pyi", ".pyw", ".rb"})
_CODE_SAYS = re.compile(rb"(?:[^\n]*\n)?[ \t\f]*#[^\n]*?coding[:=][ \t]*([\w.-]+)")
#: So many bytes at the beginning may.
_SAYS: Final = 2048
_OBJECT = re.compile(rb"[0-9] +[0-9]+ +obj\b")
#: How far into a text its title is looked for.
_HEAD = 20_000
#: Front matter is no longer than this.
_FRONT = 16_384
#: Nor are its lists nested more deeply. (PyYAML takes minutes for thousands of brackets.)
_DEEPEST = 50
_BRACKETS = {"[": 1, "{": 1, "]": -1, "}": -1}


class Parsed(NamedTuple):
    """A document's text, and what kind of document it is (decides how it is cut)."""

    kind: str
    title: str
    text: str
    #: What front matter says, its values mostly as text.
    front: Mapping[str, Any] = MappingProxyType({})
    #: Where its pages begin, if the format has any.
    pages: Sequence[int] = ()


class ParseFailure(Exception):
    """A document that cannot be indexed as it is: at which stage, and why. `quoting`: the reason is a library's, which
    may quote the document.
    """

    def __init__(self, stage: str, reason: str, *, quoting: bool = False) -> None:
        super().__init__(stage, reason)
        self.stage = stage
        self.reason = reason
        self.quoting = quoting


class Parser(Protocol):
    """Turns bytes into text."""

    @property
    def fingerprint(self) -> str:
        """Changes when documents would be parsed differently."""

    def parse(self, data: bytes, uri: str, *, max_line_bytes: int, max_bytes: int) -> Parsed:
        """Raises `ParseFailure`."""


@cache
def fingerprint() -> str:
    """Changes when documents would be parsed differently: with another version of a library, which a process has one
    of.
    """
    return digest([PARSER_VERSION, *map(version, ("chardet", "pypdf", "pyyaml", "selectolax"))])


@dataclass(frozen=True)
class FileParser:
    """Instep's own parser. `encoding`: the character set of texts that are not UTF-8; without it, it is found out."""

    encoding: str | None = None

    @property
    def fingerprint(self) -> str:
        return fingerprint() if self.encoding is None else digest([fingerprint(), self.encoding])

    def parse(self, data: bytes, uri: str, *, max_line_bytes: int, max_bytes: int) -> Parsed:
        """Text of a document; its URI's suffix says what it is. Raises `ParseFailure`.

        The title is that of the document (front matter, first heading, <title>, PDF metadata), or else the name of the
        file. Line ends become `\\n`; front matter is not part of the text. What is compressed is as what is in it, of
        which more than `max_bytes` are too many.
        """
        data, name = unpacked(data, name_of(uri), max_bytes=max_bytes)
        suffix = suffix_of(name)
        kind = _KINDS.get(suffix, "text")
        if not data:
            return Parsed(kind, name[:TITLE], "")
        if suffix in FORMATS and FORMATS[suffix].match(data):
            raise ParseFailure("parse", f"{suffix} is read with `parse: {{type: kreuzberg}}` (instep[formats])")
        if kind == "pdf":
            title, text, pages = _pdf(data)
            return Parsed(kind, titled(title) or name[:TITLE], text, pages=pages)
        said = said_of(data, suffix)
        if kind == "html":
            from instep.pipeline.documents.html import html_text

            title, text = html_text(text_of(data, said=said, encoding=self.encoding))
            check_lines(text, max_line_bytes)
            return Parsed("markdown", titled(title) or name[:TITLE], text)
        check_lines(data, max_line_bytes)
        text = text_of(data, said=said, encoding=self.encoding)
        title = ""
        if kind == "markdown":
            title, text, front = _markdown(text)
            return Parsed(kind, titled(title) or name[:TITLE], text, front)
        if kind == "rst":
            title = _first_section(text[:_HEAD])
        return Parsed(kind, titled(title) or name[:TITLE], text)


#: The parser where nothing is declared.
FILE_PARSER: Final = FileParser()

#: What gzip begins with.
_GZIP = b"\x1f\x8b"
_ENDING = ".gz"


def unpacked(data: bytes, name: str, *, max_bytes: int) -> tuple[bytes, str]:
    """The content of a file compressed with gzip, and its name without `.gz`; of others what they are. Raises
    `ParseFailure`.
    """
    if not (data.startswith(_GZIP) and name.lower().endswith(_ENDING)):
        return data, name
    import gzip
    import io

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            found = file.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ParseFailure("parse", f"broken gzip: {error}") from None
    if len(found) > max_bytes:
        raise ParseFailure("read", f"too large: more than {max_bytes:,} bytes when unpacked; see max_document_bytes")
    return found, name[: -len(_ENDING)]


def parse_text(data: bytes, uri: str, *, max_line_bytes: int) -> Parsed:
    """Parse text that the source has taken out of its document already, so it is left as it is. It is cut as Markdown
    if the URI ends like that. The title is the first heading of Markdown, or else the end of the URI.
    """
    name = name_of(uri)
    check_lines(data, max_line_bytes)
    text = text_of(data, guess=False)
    markdown = _KINDS.get(suffix_of(name)) == "markdown"
    title = heading(text) if markdown else ""
    return Parsed("markdown" if markdown else "text", titled(title) or name[:TITLE], text)


def name_of(uri: str) -> str:
    """The name of a document's file."""
    return unquote(uri.rsplit("/", 1)[-1], errors="replace")


def suffix_of(name: str) -> str:
    """The suffix of a file's name, in lower case. No path is made of a usual name: that takes as long as to
    parse a small document.
    """
    if "/" in name:
        return PurePosixPath(name).suffix.lower()
    at = name.rfind(".")
    return name[at:].lower() if 0 < at < len(name) - 1 else ""


def is_html(suffix: str) -> bool:
    """Whether files with this suffix are HTML."""
    return _KINDS.get(suffix) == "html"


def titled(text: str) -> str:
    """A title as it is stored: one line, not too long, of characters that every target holds. (Escapes in front matter
    and in JSON stand for others too.)
    """
    text = text.encode("utf-8", "replace").decode().replace("\0", " ")
    return " ".join(text.split())[:TITLE]


def check_lines(data: bytes | str, most: int) -> None:
    """Check the length of lines. Raises `ParseFailure` at the first line of more than `most` bytes (of text:
    characters).
    """
    newlines = (b"\n", b"\r") if isinstance(data, bytes) else ("\n", "\r")
    start = 0
    while len(data) - start > most:
        end = max(data.rfind(newline, start, start + most + 1) for newline in newlines)  # type: ignore[arg-type]  # both are bytes, or both text
        if end < 0:
            raise ParseFailure("parse", f"a line of more than {most:,} bytes (max_line_bytes), at byte {start:,}")
        start = end + 1


def said_of(data: bytes, suffix: str) -> str | None:
    """The character set that a text names itself; its suffix says where it would."""
    found = _XML_SAYS.match(data, 0, _SAYS)
    if found is None and is_html(suffix):
        found = _HTML_SAYS.search(data, 0, _SAYS)
    elif found is None and suffix in _CODE_THAT_SAYS:
        found = _CODE_SAYS.match(data, 0, _SAYS)
    return None if found is None else found[1].decode("ascii", "replace")


def text_of(data: bytes, *, said: str | None = None, encoding: str | None = None, guess: bool = True) -> str:
    """Raises `ParseFailure` for bytes that are no text; `said` and `encoding` as in `character_sets`."""
    from instep.pipeline.documents.character_sets import NotText, decoded

    try:
        return decoded(data, said=said, declared=encoding, guess=guess)
    except NotText as error:
        raise ParseFailure("parse", str(error)) from None


def _markdown(text: str) -> tuple[str, str, Mapping[str, Any]]:
    said, text = _front_matter(text)
    title = next((value for key, value in said.items() if key.lower() == "title" and isinstance(value, str)), "")
    return title or heading(text), text, said


def _front_matter(text: str) -> tuple[Mapping[str, Any], str]:
    """Split a text into its front matter and the rest. Only a mapping is front matter: a document may as well begin
    with a rule, and the text between it and the next one is content.
    """
    for pattern, read in ((_YAML, _yaml), (_TOML, _toml)):
        found = pattern.match(text[: _FRONT + 1])
        if found is not None:
            said = read(found[1]) if found[1].strip() else {}
            return ({}, text) if said is None else (said, text[found.end() :])
    return {}, text


def _yaml(text: str) -> Mapping[str, Any] | None:
    """Parse YAML with all values as text; None if it is no mapping. (By PyYAML's loader in Python: that in C ends the
    process where lists are nested deeply.)
    """
    import yaml

    if max(accumulate(_BRACKETS.get(each, 0) for each in text)) > _DEEPEST:
        return None
    try:
        said = yaml.load(text, yaml.BaseLoader)  # noqa: S506 - makes nothing but text
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return {str(key): value for key, value in said.items()} if isinstance(said, dict) else None


def _toml(text: str) -> Mapping[str, Any] | None:
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _first_section(text: str) -> str:
    """reStructuredText: a line underlined by punctuation at least as long as it is."""
    before = ""
    for line in map(str.strip, text.split("\n")):
        if before and not _RULE.match(before) and len(line) >= len(before) and _RULE.match(line):
            return before
        before = line
    return ""


def heading(text: str) -> str:
    """The first heading of Markdown, if it is near the beginning."""
    return next((each.text for each in markdown_headings(text[:_HEAD])), "")


def _pdf(data: bytes) -> tuple[str, str, list[int]]:
    import io
    import warnings

    from pypdf import PdfReader
    from pypdf.errors import DependencyError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    if b"%PDF-" not in data[:1024]:
        raise ParseFailure("parse", "not a PDF: it does not begin with %PDF-")
    end = data.rfind(b"%%EOF")
    # Bytes behind the mark do no harm; objects do: then the mark is that of an older version, or of its first page.
    if end < 0 or _OBJECT.search(data, end):
        raise ParseFailure("parse", "truncated PDF: its end mark is missing")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader = PdfReader(io.BytesIO(data))
            locked = reader.is_encrypted and not reader.decrypt("")
            pages = [] if locked else [page.extract_text() for page in reader.pages]
            title = "" if locked else str((reader.metadata and reader.metadata.title) or "")
    except DependencyError as error:
        # pypdf brings no library for what is rare; for AES it does not say how to get one.
        how = "; pip install 'pypdf[crypto]', then run with --retry-failures" if "AES" in str(error) else ""
        raise ParseFailure("parse", f"a package that this PDF needs is not installed: {error}{how}") from None
    except MemoryError:
        raise
    except (Exception, RecursionError) as error:
        # A broken file can raise about anything in a PDF library; it is the document's fault.
        raise ParseFailure("parse", f"broken PDF: {type(error).__name__}: {error}", quoting=True) from None
    if locked:
        raise ParseFailure("parse", "the PDF is encrypted")
    text, starts = joined_pages(pages)
    if not text:
        raise ParseFailure("parse", "the PDF has no text (scanned pages?)" if pages else "the PDF has no pages")
    # Lone surrogates come out of broken fonts and are not text.
    return title, text.encode("utf-8", "replace").decode(), starts

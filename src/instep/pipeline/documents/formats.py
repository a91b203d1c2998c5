"""Office documents, e-books, notebooks and PDF as Markdown, by kreuzberg, and mails; all else as by `FileParser`."""

from __future__ import annotations

import functools
import io
import zipfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from instep.domain.fingerprint import digest
from instep.errors import UserError
from instep.pipeline.documents.parse import (
    FileParser,
    Parsed,
    ParseFailure,
    check_lines,
    heading,
    name_of,
    suffix_of,
    titled,
    unpacked,
)
from instep.pipeline.documents.places import pages_in
from instep.pipeline.documents.rtf import in_unicode

#: Media types by suffix.
_OFFICE: Final = "application/vnd.openxmlformats-officedocument."
_OPEN: Final = "application/vnd.oasis.opendocument."
MEDIA_TYPES: Final = {
    ".docx": _OFFICE + "wordprocessingml.document",
    ".pptx": _OFFICE + "presentationml.presentation",
    ".xlsx": _OFFICE + "spreadsheetml.sheet",
    ".doc": "application/msword",
    ".ppt": "application/vnd.ms-powerpoint",
    ".xls": "application/vnd.ms-excel",
    ".odt": _OPEN + "text",
    ".ods": _OPEN + "spreadsheet",
    ".rtf": "application/rtf",
    ".epub": "application/epub+zip",
    ".ipynb": "application/x-ipynb+json",
    ".pdf": "application/pdf",
}
MAILS: Final = (".eml", ".msg")
SUFFIXES: Final = frozenset({*MEDIA_TYPES, *MAILS})
#: Files that are taken beside the usual ones.
INCLUDED: Final = tuple(f"**/*{suffix}" for suffix in (*MEDIA_TYPES, *MAILS) if suffix != ".pdf")
#: Raised whenever any document would be parsed differently.
RULES: Final = "mails-2"
_PACKAGE: Final = "kreuzberg"
#: What it takes to read mails of Outlook.
_OF_MAILS: Final = ("olefile", "compressed-rtf")


@dataclass(frozen=True)
class FormatParser:
    """Parses files of these formats by kreuzberg, and others by `files`."""

    files: FileParser
    library: str

    @classmethod
    def of(cls, encoding: str | None) -> FormatParser:
        """Raises `UserError` if a package that it takes is not installed."""
        for package in (*_OF_MAILS, _PACKAGE):
            try:
                library = version(package)
            except PackageNotFoundError:
                hint = "pip install 'instep[formats]'"
                raise UserError(f"`parse: {{type: kreuzberg}}` needs {package}", hint=hint) from None
        return cls(FileParser(encoding), library)

    @property
    def fingerprint(self) -> str:
        return digest([self.files.fingerprint, _PACKAGE, self.library, *map(version, _OF_MAILS), RULES])

    def parse(self, data: bytes, uri: str, *, max_line_bytes: int, max_bytes: int) -> Parsed:
        """Raises `ParseFailure`."""
        content, name = unpacked(data, name_of(uri), max_bytes=max_bytes)
        suffix = suffix_of(name)
        if suffix not in SUFFIXES or not content:
            return self.files.parse(data, uri, max_line_bytes=max_line_bytes, max_bytes=max_bytes)
        if suffix in MAILS:
            found = _mail(content, suffix, self.files.encoding, max_bytes)
        else:
            text, title, pages = _extracted(content, MEDIA_TYPES[suffix], max_bytes)
            if not text:
                raise ParseFailure("parse", "there is no text in it (scanned pages, or encrypted?)")
            found = Parsed("markdown", titled(title or heading(text)), text, pages=pages)
        if len(found.text) > max_bytes:
            raise ParseFailure("parse", f"too large: {len(found.text):,} characters of text; see max_document_bytes")
        check_lines(found.text, max_line_bytes)
        return found._replace(title=found.title or titled(name))


def _mail(data: bytes, suffix: str, encoding: str | None, max_bytes: int) -> Parsed:
    from instep.pipeline.documents.mails import read_eml
    from instep.pipeline.documents.outlook import read_msg

    def text_of_rtf(rtf: bytes) -> str:
        return _extracted(rtf, MEDIA_TYPES[".rtf"], max_bytes)[0]

    try:
        mail = read_eml(data, encoding) if suffix == ".eml" else read_msg(data, encoding, text_of_rtf)
    except (ParseFailure, UserError, MemoryError):
        raise
    except RecursionError:
        raise ParseFailure("parse", "its parts are nested too deeply") from None
    except Exception as error:  # A broken file can raise about anything; it is the document's fault.
        raise _unreadable(error) from None
    return mail.parsed()


def _unreadable(error: Exception) -> ParseFailure:
    name = type(error).__name__
    return ParseFailure("parse", f"cannot be read: {name}: {str(error).removeprefix(f'{name}: ')}", quoting=True)


def _extracted(data: bytes, media_type: str, max_bytes: int) -> tuple[str, str, list[int]]:
    """Text in Markdown, the title that the document says of itself, and where the pages of a PDF begin."""
    import kreuzberg

    _demand_size(data, max_bytes)
    if media_type == MEDIA_TYPES[".rtf"]:
        try:
            data = in_unicode(data)
        except UnicodeDecodeError as error:
            raise ParseFailure("parse", f"a letter that is not in {error.encoding}, as its font has it") from None
    paged = media_type == MEDIA_TYPES[".pdf"]  # It counts pages of others in some way of its own.
    try:
        found = kreuzberg.extract_bytes_sync(data, media_type, _configuration(paged))
    except kreuzberg.MissingDependencyError as error:
        raise UserError(f"kreuzberg lacks what {media_type} needs: {error}") from error
    except MemoryError:
        raise
    except Exception as error:  # A broken file can raise about anything; it is the document's fault.
        raise _unreadable(error) from None
    text = found.content.encode("utf-8", "replace").decode().replace("\0", " ").strip()
    said: dict[str, Any] = dict(found.metadata or {})
    pages = pages_in(text, [each["content"] for each in found.pages or ()]) if paged else []
    return text, str(said.get("title") or said.get("subject") or ""), pages


def _demand_size(data: bytes, max_bytes: int) -> None:
    """Raises `ParseFailure` for a packed document that is too large when it is unpacked."""
    try:
        size = sum(each.file_size for each in zipfile.ZipFile(io.BytesIO(data)).infolist())
    except (zipfile.BadZipFile, ValueError, OSError):  # It is not packed, or broken, which the parser says.
        return
    if size > max_bytes:
        raise ParseFailure("parse", f"too large: {size:,} bytes when unpacked; see max_document_bytes")


@functools.cache
def _configuration(paged: bool) -> Any:
    """The configuration of kreuzberg. Its own limits hold as well: those of nesting, of entities in XML, and of 100 MB
    for a part. What stands at the top of a page of a PDF is often a heading: it is not left out as if it stood on every
    page.
    """
    import kreuzberg

    every = kreuzberg.ContentFilterConfig(include_headers=True, include_footers=True, strip_repeating_text=False)
    made = kreuzberg.ExtractionConfig(
        output_format="markdown",
        use_cache=False,
        content_filter=every if paged else None,
        pages=kreuzberg.PageConfig(extract_pages=True) if paged else None,
    )
    made.disable_ocr = True  # type: ignore[attr-defined]  # its stubs lack it
    return made

"""Mails as text: those of the standard (`.eml`), and what `outlook` finds in Outlook's (`.msg`)."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from email.utils import parsedate_to_datetime
from quopri import decodestring
from typing import Any, Final, NamedTuple

from instep.pipeline.documents.character_sets import tells
from instep.pipeline.documents.html import html_text
from instep.pipeline.documents.parse import Parsed, ParseFailure, said_of, text_of, titled

#: Words of a header that are not in ASCII.
_WORD: Final = re.compile(r"=\?([^?*\s]+)(?:\*[^?\s]*)?\?([bBqQ])\?([^?]*)\?=")
#: Texts that are no part of what a mail says.
_FOR_PROGRAMS: Final = ("text/calendar", "text/vcard", "text/x-vcard", "text/directory", "text/css")


class Part(NamedTuple):
    """A part of a mail that is shown."""

    html: bool
    text: str


@dataclass(frozen=True)
class Mail:
    """A mail as it is indexed: of attachments their names."""

    subject: str
    sender: str
    to: str
    copies: str
    date: str
    parts: Sequence[Part]
    attachments: Sequence[str]

    def parsed(self) -> Parsed:
        said = {
            **{"Subject": self.subject, "From": self.sender, "To": self.to, "Cc": self.copies, "Date": self.date},
            "Attachments": ", ".join(self.attachments),
        }
        text = "\n".join(f"{name}: {' '.join(value.split())}" for name, value in said.items() if value.strip())
        bodies = (html_text(part.text)[1] if part.html else part.text.strip() for part in self.parts)
        text = "\n\n".join([text, *bodies]).strip().replace("\0", " ")
        kind = "markdown" if any(part.html for part in self.parts) else "text"
        return Parsed(kind, titled(self.subject), text)


def read_eml(data: bytes, encoding: str | None) -> Mail:
    """Read a mail (.eml). `encoding`: the character set of parts that name none. Raises `ParseFailure`, and whatever a
    broken mail leads to.
    """
    message = message_from_bytes(data)
    headers = _Headers(message, encoding)
    return Mail(
        **{name: headers.text(header) for name, header in _HEADERS.items()},
        date=_date(headers.text("date")),
        parts=[*_shown(message, encoding, whole=True)],
        attachments=[*filter(None, _attached(message, encoding))],
    )


_HEADERS: Final = {"subject": "subject", "sender": "from", "to": "to", "copies": "cc"}


class _Headers:
    """The headers of a message. Letters that are not encoded as they should be are in the character set of its text."""

    def __init__(self, message: Message, encoding: str | None) -> None:
        charsets = (part.get_content_charset() for part in message.walk())
        self._said = next(filter(tells, charsets), None)
        self._encoding = encoding
        self._raw: dict[str, str] = {}
        for name, value in message.raw_items():
            self._raw.setdefault(name.lower(), str(value))

    def text(self, name: str) -> str:
        try:
            return self.decoded(self._raw.get(name, ""))
        except ParseFailure as error:
            raise ParseFailure(error.stage, f"in its header {name.title()}: {error.reason}") from None

    def decoded(self, value: str) -> str:
        """A header, or the name of a file, in letters. Words of one character set are put together before they are
        read: many a program cuts them within a letter.
        """
        parts: list[tuple[str, bytes]] = []
        at = 0
        for word in _WORD.finditer(value):
            between = value[at : word.start()]
            if between.strip() or not parts:
                parts.append(("", between.encode("utf-8", "surrogateescape")))
            charset, letters = word[1].lower(), _letters(word)
            if parts[-1][0] == charset:
                letters = parts.pop()[1] + letters
            parts.append((charset, letters))
            at = word.end()
        parts.append(("", value[at:].encode("utf-8", "surrogateescape")))
        return "".join(_text(each, charset or self._said, self._encoding) for charset, each in parts)


def _letters(word: re.Match[str]) -> bytes:
    letters = word[3].encode("utf-8", "surrogateescape")
    if word[2] in "qQ":
        return decodestring(letters, header=True)
    try:
        return b64decode(letters + b"==")
    except Error:
        return word[0].encode("utf-8", "surrogateescape")


def _text(data: bytes, said: str | None, encoding: str | None) -> str:
    """Letters in the character set that they name, whatever the project says."""
    return text_of(data, said=said, encoding=None if tells(said) else encoding)


def _shown(part: Any, encoding: str | None, *, whole: bool = False) -> Iterator[Part]:
    """The text of a message (`whole`) or of a part of it. Of alternatives it is the plain one, if that is not empty."""
    kind, attached = part.get_content_type(), part.get_content_disposition() == "attachment"
    if attached or kind.startswith("message/") or (part.get_filename() and not whole):
        return
    if kind.startswith("multipart/") and not part.is_multipart():
        raise ParseFailure("parse", "its parts cannot be told apart: what is said to stand between them is not there")
    if kind == "multipart/alternative":
        choices = [list(_shown(each, encoding)) for each in part.get_payload()]
        choices.sort(key=lambda choice: any(each.html for each in choice))
        yield from next((choice for choice in choices if any(each.text.strip() for each in choice)), [])
    elif part.is_multipart():
        for each in part.get_payload():
            yield from _shown(each, encoding)
    elif kind.startswith("text/") and kind not in _FOR_PROGRAMS:
        data, said, html = part.get_payload(decode=True), part.get_content_charset(), kind == "text/html"
        if html and not tells(said):
            said = said_of(data, ".html")
            yield Part(html, text_of(data, said=said, encoding=encoding))
        else:
            yield Part(html, _text(data, said, encoding))


def _attached(part: Any, encoding: str | None) -> Iterator[str]:
    """Names of attachments; of messages that are attached their subjects."""
    name = part.get_filename() or ""
    if part.get_content_type() == "message/rfc822" and part.is_multipart():
        yield from (_Headers(each, encoding).text("subject") or name for each in part.get_payload())
    elif name:
        yield _Headers(part, encoding).decoded(name)
    elif part.is_multipart():
        for each in part.get_payload():
            yield from _attached(each, encoding)


def _date(said: str) -> str:
    try:
        return parsedate_to_datetime(said).isoformat(sep=" ")
    except (ValueError, TypeError, OverflowError):
        return said

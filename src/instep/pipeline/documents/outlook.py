"""Read mails that Outlook has saved (`.msg`): properties in the streams of a compound file ([MS-OXMSG])."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from struct import iter_unpack
from typing import Any, Final

from instep.pipeline.documents.mails import Mail, Part
from instep.pipeline.documents.parse import said_of, text_of

# Identifiers of properties.
_SUBJECT: Final = 0x0037
_BODY: Final = 0x1000
_RTF: Final = 0x1009
_HTML: Final = 0x1013
#: When it was sent, delivered, made.
_DATES: Final = (0x0039, 0x0E06, 0x3007)
#: Who has sent it, or for whom.
_SENDERS: Final = (0x0C1A, 0x0042)
#: An address in SMTP, or in whatever the sender's system has.
_SENDER_ADDRESSES: Final = (0x5D01, 0x0C1F, 0x5D02)
_SHOWN_TO: Final = 0x0E04
_SHOWN_COPIES: Final = 0x0E03
_NAME: Final = 0x3001
_ADDRESSES: Final = (0x39FE, 0x3003)
_FILE_NAMES: Final = (0x3707, 0x3704, _NAME)
_RECIPIENT_TYPE: Final = 0x0C15
_TO, _COPY = 1, 2
_MESSAGE_CODE_PAGE: Final = 0x3FFD
_INTERNET_CODE_PAGE: Final = 0x3FDE
_LOCALE: Final = 0x3FF1
#: Code pages by the language of a locale (the lower ten bits); all others have 1252.
_OF_LANGUAGE: Final = {
    **{0x01: 1256, 0x02: 1251, 0x04: 936, 0x05: 1250, 0x08: 1253, 0x0D: 1255, 0x0E: 1250, 0x11: 932, 0x12: 949},
    **{0x15: 1250, 0x18: 1250, 0x19: 1251, 0x1A: 1250, 0x1B: 1250, 0x1C: 1250, 0x1E: 874, 0x1F: 1254, 0x20: 1256},
    **{0x22: 1251, 0x23: 1251, 0x24: 1250, 0x25: 1257, 0x26: 1257, 0x27: 1257, 0x29: 1256, 0x2A: 1258, 0x2F: 1251},
}
_TRADITIONAL_CHINESE: Final = {0x0404: 950, 0x0C04: 950, 0x1404: 950}
#: Names of code pages that are not called `cp` and their number.
_NAMED: Final = {
    **{936: "gb18030", 20127: "ascii", 20866: "koi8-r", 20932: "euc_jp", 21866: "koi8-u", 51932: "euc_jp"},
    **{50220: "iso2022_jp", 50221: "iso2022_jp", 50222: "iso2022_jp", 50225: "iso2022_kr", 51936: "gb2312"},
    **{51949: "euc_kr", 52936: "hz", 54936: "gb18030", 65000: "utf-7", 65001: "utf-8", 1200: "utf-16-le"},
    **{28590 + part: f"iso8859-{part}" for part in (*range(1, 10), 13, 15)},
}
#: How long the head of the list of properties is: of a message, and of a recipient or an attachment.
_HEAD_OF_MESSAGE: Final = 32
_HEAD: Final = 8
#: Times are in tenths of a microsecond since then.
_EPOCH: Final = datetime(1601, 1, 1, tzinfo=UTC)


def read_msg(data: bytes, encoding: str | None, text_of_rtf: Callable[[bytes], str]) -> Mail:
    """Read a mail of Outlook (.msg). `encoding`: the character set of texts where the mail names none. Raises
    `ParseFailure`, and whatever a broken file leads to.
    """
    import olefile

    with olefile.OleFileIO(io.BytesIO(data), raise_defects=olefile.DEFECT_INCORRECT) as file:
        mail = _Properties(file, (), _HEAD_OF_MESSAGE, encoding)
        folders = sorted({path[0] for path in file.listdir()})
        people = [_Properties(file, (each,), _HEAD, encoding, mail) for each in folders if each.startswith("__recip")]
        attached = [
            _Properties(file, (each,), _HEAD, encoding, mail) for each in folders if each.startswith("__attach")
        ]
        return Mail(
            subject=mail.text(_SUBJECT),
            sender=_person(mail.first_text(_SENDERS), mail.first_text(_SENDER_ADDRESSES)),
            to=", ".join(_people(people, _TO)) or mail.text(_SHOWN_TO),
            copies=", ".join(_people(people, _COPY)) or mail.text(_SHOWN_COPIES),
            date=next(filter(None, map(mail.time, _DATES)), ""),
            parts=[*_parts(mail, text_of_rtf)],
            attachments=[name for each in attached if (name := each.first_text(_FILE_NAMES))],
        )


@dataclass(frozen=True)
class _Properties:
    """Properties of a message, or of what is in this folder of it."""

    file: Any
    folder: tuple[str, ...]
    head: int
    encoding: str | None
    message: _Properties | None = None

    def value(self, wanted: int) -> int:
        """A number of eight bytes; zero if it is not there."""
        listed = self._stream("__properties_version1.0")[self.head :]
        whole = listed[: len(listed) // 16 * 16]
        return next((value for tag, _, value in iter_unpack("<IIQ", whole) if tag >> 16 == wanted), 0)

    def number(self, wanted: int) -> int:
        return self.value(wanted) & 0xFFFFFFFF

    def time(self, wanted: int) -> str:
        found = self.value(wanted)
        try:
            return (
                (_EPOCH + timedelta(microseconds=found // 10)).isoformat(sep=" ", timespec="seconds") if found else ""
            )
        except OverflowError:  # Beyond the year 9999: no time is said so.
            return ""

    def data(self, wanted: int) -> bytes:
        return self._stream(f"__substg1.0_{wanted:04X}0102")

    def text(self, wanted: int) -> str:
        if wide := self._stream(f"__substg1.0_{wanted:04X}001F"):
            return wide.decode("utf-16-le", "replace").rstrip("\0")
        narrow = self._stream(f"__substg1.0_{wanted:04X}001E").rstrip(b"\0")
        said = (self.message or self).code_page()
        return text_of(narrow, said=said, encoding=None if said else self.encoding)

    def first_text(self, wanted: tuple[int, ...]) -> str:
        return next(filter(None, map(self.text, wanted)), "")

    def code_page(self) -> str | None:
        """The character set of texts of one byte a letter."""
        locale = self.number(_LOCALE)
        of_locale = _TRADITIONAL_CHINESE.get(locale) or _OF_LANGUAGE.get(locale & 0x3FF, 1252) if locale else 0
        return _character_set(self.number(_MESSAGE_CODE_PAGE) or of_locale or self.number(_INTERNET_CODE_PAGE))

    def _stream(self, name: str) -> bytes:
        path = [*self.folder, name]
        return bytes(self.file.openstream(path).read()) if self.file.exists(path) else b""


def _character_set(code_page: int) -> str | None:
    return _NAMED.get(code_page, f"cp{code_page}") if code_page else None


def _parts(mail: _Properties, text_of_rtf: Callable[[bytes], str]) -> Iterator[Part]:
    """The text of a mail: plain, or else as HTML, or else as RTF."""
    import compressed_rtf

    if plain := mail.text(_BODY).strip():
        yield Part(False, plain)
    elif page := mail.data(_HTML):
        said = _character_set(mail.number(_INTERNET_CODE_PAGE)) or said_of(page, ".html")
        yield Part(True, text_of(page, said=said, encoding=mail.encoding if said is None else None))
    elif html := mail.text(_HTML):
        yield Part(True, html)
    elif rtf := mail.data(_RTF):
        yield Part(False, text_of_rtf(compressed_rtf.decompress(rtf)))


def _people(all_of_them: list[_Properties], kind: int) -> Iterator[str]:
    for each in all_of_them:
        if each.number(_RECIPIENT_TYPE) == kind:
            yield _person(each.text(_NAME), each.first_text(_ADDRESSES))


def _person(name: str, address: str) -> str:
    """Name and address. What is no address in SMTP tells nobody anything."""
    name = name.strip("' ")
    return f"{name} <{address}>" if "@" in address and name != address else name or address

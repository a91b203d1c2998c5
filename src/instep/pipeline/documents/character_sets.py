"""Bytes → text: in UTF-8, in what a byte order mark or the text itself says, what is declared, or what is found out.

A text whose character set is not clear is a failure, and not indexed with wrong letters.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
#: What texts are found to be in; others are rarer than mistakes.
_USUAL: Final = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859_2", "koi8_r"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
)
#: Those that differ from the usual one of Western Europe in a few letters: the languages that need them.
_LATIN: Final = {
    "cp1250": {"Czech", "Croatian", "Hungarian", "Polish", "Romanian", "Slovak", "Slovene"},
    "cp1254": {"Turkish"},
    "cp1257": {"Estonian", "Latvian", "Lithuanian"},
}
_WESTERN: Final = "cp1252"
#: What is a letter or the euro in ISO-8859-15, and in cp1252 a sign that seldom stands so: a text that has it may be in
#: either.
_SIGNS: Final = "[\u00a6\u00a8\u00b4\u00b8\u00bc-\u00be]"
_LATIN_9: Final = re.compile(rf"\u00a4|{_SIGNS}(?=[^\W\d_])|(?<=[^\W\d_]){_SIGNS}")
#: Codecs of Python that are no character sets, whatever a page says of itself.
_NO_CHARACTER_SETS: Final = frozenset({"unicode-escape", "raw-unicode-escape", "idna", "punycode", "undefined"})
_OF_MANY_BYTES: Final = frozenset({"cp932", "euc_jp", "gb18030", "big5", "cp949"})
#: How much of a text tells its character set, in bytes.
_SAMPLE: Final = 200_000
#: The share of its letters that are as often as in the language that it is taken for (`charset_normalizer`'s coherence)
#: from which a character set of one byte a letter is believed: any of them reads anything.
_CLEAR: Final = 0.4
#: Letters beyond ASCII from which one of several bytes a letter is.
_ENOUGH: Final = 8


class NotText(Exception):
    """Bytes that are no text, or in an unknown character set; the message says at which place."""


def decoded(data: bytes, *, said: str | None = None, declared: str | None = None, guess: bool = True) -> str:
    """The text; line ends become `\\n`. Raises `NotText`.

    `said`: the character set that the text names itself. `declared`: that of texts which are neither UTF-8 nor that; if
    there is none, it is found out (`guess`).
    """
    encoding, name = next((each[1:] for each in _BOMS if data.startswith(each[0])), ("utf-8", "UTF-8"))
    if encoding == "utf-8" and (zero := data.find(b"\0")) >= 0:
        if declared is None or not _wide(declared):
            raise NotText(f"binary, not text: NUL at byte {zero:,}")
        # No UTF-8 has NUL, though the bytes of plain letters in UTF-16 are valid as such.
        encoding = name = declared
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        # A text that is marked as UTF-16 is in no other character set.
        if name != "UTF-8" or not (guess or said or declared):
            raise NotText(f"not {name} at byte {error.start:,}") from None
        text = _otherwise(data, said, declared, error.start)
    if "\0" in text:
        raise NotText(f"binary, not text: NUL at character {text.index(chr(0)):,}")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _wide(declared: str) -> bool:
    return codecs.lookup(declared).name.startswith(("utf-16", "utf-32"))


def _otherwise(data: bytes, said: str | None, declared: str | None, place: int) -> str:
    for encoding in filter(None, (said, declared)):
        try:
            if codecs.lookup(encoding).name.replace("_", "-") not in _NO_CHARACTER_SETS:
                return data.decode(encoding)
        except (LookupError, ValueError):
            continue
    if declared is not None:
        raise NotText(f"neither UTF-8 (at byte {place:,}) nor {declared}")
    return _found_out(data, place)


def _found_out(data: bytes, place: int) -> str:
    from charset_normalizer import from_bytes

    # From the first letter that is beyond ASCII on: before it, every character set says the same.
    start = max(0, place - 1_000)
    best = from_bytes(data[start : start + _SAMPLE], cp_isolation=list(_USUAL)).best()
    if best is None:
        raise NotText(f"not UTF-8 at byte {place:,}, nor in any usual character set")
    encoding = best.encoding
    if best.language not in _LATIN.get(encoding, {best.language}):
        encoding = _WESTERN
    beyond = sum(each > 127 for each in data[start : start + _SAMPLE])
    clear = beyond >= _ENOUGH if encoding in _OF_MANY_BYTES else best.coherence >= _CLEAR
    try:
        text = data.decode(encoding) if clear else None
    except UnicodeDecodeError:
        text = None
    if text is not None and encoding == _WESTERN and _LATIN_9.search(text):
        raise NotText(f"not UTF-8 at byte {place:,}; it may be cp1252 or iso8859_15: say which with `encoding`")
    if text is None:
        raise NotText(f"not UTF-8 at byte {place:,}; if it is {encoding}, say so: `encoding: {encoding}`")
    return text

"""Bytes → text: in what a byte order mark says, UTF-8, what is declared, or what is found out.

A text whose character set is not clear is a failure, and not indexed with wrong letters.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import chain
from typing import Final

#: What texts begin with that are marked; and XML, whose first letters are known.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
    ("<?".encode("utf-16-le"), "utf-16-le", "UTF-16"),
    ("<?".encode("utf-16-be"), "utf-16-be", "UTF-16"),
)
_OF_ONE_BYTE: Final = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp874", "koi8-r", "koi8-u"),
    *("iso8859-2", "iso8859-5", "iso8859-7", "iso8859-15"),
)
_OF_SEVERAL_BYTES: Final = ("cp932", "euc_jis_2004", "gb18030", "big5hkscs", "cp949")
#: What texts are found to be in; others are rarer than mistakes.
_USUAL: Final = (*_OF_ONE_BYTE, *_OF_SEVERAL_BYTES)
_JAPANESE: Final = frozenset({"cp932", "euc_jis_2004"})
#: One of these has all letters of most texts.
_NATIONAL: Final = (*_OF_ONE_BYTE, "cp932", "gb2312", "big5", "euc_kr")
#: The character set that texts are in which declare a part of it, as the standard of HTML has it.
_WHOLE: Final = {
    **{"iso8859-1": "cp1252", "iso8859-9": "cp1254", "tis-620": "cp874", "shift_jis": "cp932", "big5": "big5hkscs"},
    **{"gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "euc_jp": "euc_jis_2004"},
}
#: Codecs of Python that are no character sets, whatever a page says of itself.
_NO_CHARACTER_SETS: Final = frozenset({"unicode-escape", "raw-unicode-escape", "idna", "punycode", "undefined"})
#: What is declared without a thought.
_UNSAID: Final = frozenset({"", "utf-8", "ascii"})
#: Texts in these have no bytes but those of ASCII.
_ESCAPED: Final = ("iso2022", "hz", "utf-7")
#: What stands before the first letter beyond ASCII in the usual ones.
_SIGNS: Final = ((b"\x1b$B", "iso2022_jp_ext"), (b"\x1b$@", "iso2022_jp_ext"), (b"\x1b$)C", "iso2022_kr"))
_WIDE: Final = ("utf-16", "utf-32")
#: Control characters that no text has.
_CONTROLS: Final = bytes({*range(1, 32), 127} - {*b"\b\t\n\v\f\r\x1b"})
#: Those beyond ASCII, and signs at a letter that were letters in another character set.
_ODD: Final = re.compile(
    "[\x80-\x9f]|\u0192(?=[^\\W\\d_])|(?<=[^\\W\\d_])[\xa4\xa6\xa8\xb1\xb6\xb8\xbc-\xbe]"
    "|(?<=[a-z])[\u201a\u201e\u02c6\u2021](?=[\\sa-z])"
)
#: Words in Greek, Cyrillic, Hebrew or Arabic, and where a word mixes their letters with Latin ones.
_FOREIGN: Final = re.compile("[\u0370-\u06ff]+")
_MIXED: Final = re.compile("[A-Za-z][\u0370-\u06ff]|[\u0370-\u06ff][A-Za-z]")
_KANA: Final = re.compile("[\u3041-\u30fa]")
#: What most texts have some of.
_PLAIN: Final = re.compile("[\n -~\u3001\u3002\uff0c]")
#: Words of plain letters and others, as in the languages of Europe.
_JOINED: Final = re.compile("[A-Za-z][^\0-\x7f]|[^\0-\x7f][A-Za-z]")
#: How much of a text tells its character set, in bytes.
_SAMPLE: Final = 200_000
#: A reading is believed if chardet is so sure of it, and so many times as sure as of any other one.
_CLEAR: Final = ((0.15, 1.1), (0.05, 10))
#: Another one is worth a word if it is not so many times less sure.
_SEVERAL: Final = 4
_NONE: Final = ("none", 0.02)
#: Fewer bytes may be in any character set of several bytes.
_LEAST: Final = 6
#: So many letters beyond ASCII are not UTF-8 by chance.
_ENOUGH: Final = 8


class NotText(Exception):
    """Bytes that are no text, or in an unknown character set; the message says at which place."""


def decoded(data: bytes, *, said: str | None = None, declared: str | None = None, guess: bool = True) -> str:
    """The text; line ends become `\\n`. Raises `NotText`.

    `said`: the character set that the text names itself. `declared`: that of texts which are not UTF-8, whatever they
    say. If there is neither, it is found out (`guess`).
    """
    said = "" if said is None or _name(said).startswith(_WIDE) else said  # What can be read is not in that.
    text = _read(data, said, declared or "", guess)
    if "\0" in text:
        raise NotText(f"binary, not text: NUL at character {text.index(chr(0)):,}")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _read(data: bytes, said: str, declared: str, guess: bool) -> str:
    for mark, encoding, name in _MARKS:
        if data.startswith(mark):
            return _strictly(data, encoding, name)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return _otherwise(data, said, declared, guess, error.start)
    if _name(declared).startswith(_WIDE):
        return _wide(data, text, declared)
    if (zero := data.find(b"\0")) >= 0:
        raise NotText(f"binary, not text: NUL at byte {zero:,}")
    if not guess:
        return text
    if _is_control(data):
        raise NotText("binary, not text: a quarter of it are control characters; of UTF-16, say so: `encoding: utf-16`")
    return _declared(data, text, said, declared)


def _declared(data: bytes, text: str, said: str, declared: str) -> str:
    """The text of bytes that are valid UTF-8: if that may be by chance, in what is declared, or what its signs say."""
    if data.isascii():
        escaped = next((each for each in (declared, said) if _name(each).startswith(_ESCAPED)), None)
        if escaped is not None:
            return _strictly(data, escaped, escaped)
        return next((each for sign, name in _SIGNS if sign in data for each in _readings(data, name)), text)
    if len(text) - len(text.encode("ascii", "ignore")) < _ENOUGH and not _JOINED.search(text):
        several = next((each for each in (declared, said) if _whole(each) in _OF_SEVERAL_BYTES), "")
        return next(_readings(data, several), text)
    return text


def _strictly(data: bytes, encoding: str, name: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise NotText(f"not {name} at byte {error.start:,}") from None


def _name(encoding: str) -> str:
    """Python's name of a character set; empty if it is none."""
    try:
        found = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        return ""
    return "" if found.replace("_", "-") in _NO_CHARACTER_SETS else found


def tells(encoding: str | None) -> bool:
    """True of the name of a character set that nobody gives without a thought."""
    return _name(encoding or "") not in _UNSAID


def _whole(encoding: str) -> str:
    """The character set that texts are in which declare this one."""
    name = _name(encoding)
    return _WHOLE.get(name, name)


def _readings(data: bytes, encoding: str) -> Iterator[str]:
    """The text in the whole of a declared character set, and in the declared one."""
    for each in filter(None, dict.fromkeys((_whole(encoding), _name(encoding)))):
        try:
            yield _of_either_order(data) if each == "utf-16" else data.decode(each)
        except (LookupError, ValueError):  # Codecs such as base64 make no text.
            continue


def _of_either_order(data: bytes) -> str:
    """UTF-16 without a mark: its bytes are in the order in which it is rather a text."""
    orders = {text: (len(_PLAIN.findall(text)), _is_national(text)) for text in _in_utf_16(data)}
    if not orders or len({*orders.values()}) < len(orders):
        raise ValueError("not UTF-16, or in either order")
    return max(orders, key=orders.__getitem__)


def _in_utf_16(data: bytes) -> list[str]:
    return list(chain.from_iterable(_readings(data, each) for each in ("utf-16-le", "utf-16-be")))


def _wide(data: bytes, text: str, declared: str) -> str:
    """A text that is declared to be in UTF-16 or UTF-32, though its bytes are UTF-8 as well: those of plain letters
    are, with NULs between them.
    """
    zeros, controls = data.count(0), _is_control(data)
    wide = next(_readings(data, declared), None)
    if wide is None or not (controls or zeros >= len(data) / 4 or _is_national(wide)):
        if zeros or controls:
            raise NotText(f"binary, not text: neither UTF-8 (NUL at byte {data.find(0):,}) nor {declared}")
        return text
    if not zeros and not controls:
        raise NotText(f"it may be UTF-8 or {declared}: begin it with a byte order mark")
    return wide


def _is_national(text: str) -> bool:
    for each in _NATIONAL:
        try:
            text[:_SAMPLE].encode(each)
        except UnicodeEncodeError:
            continue
        return True
    return False


def _is_control(data: bytes) -> bool:
    """True if a quarter of this are control characters that no text has."""
    return len(data) - len(data.translate(None, _CONTROLS)) > len(data) / 4


def _otherwise(data: bytes, said: str, declared: str, guess: bool, place: int) -> str:
    """The text of what is not UTF-8 from this place on."""
    if (zero := data.find(b"\0")) >= 0 and not _name(declared).startswith(_WIDE):
        raise NotText(f"binary, not text: NUL at byte {zero:,}")
    for each in filter(None, (declared, said)):
        for text in _readings(data, each):
            return text
    if declared:
        raise NotText(f"neither UTF-8 (at byte {place:,}) nor {declared}")
    if tells(said):
        raise NotText(f"neither {said}, as it says, nor UTF-8 (at byte {place:,}); if you know, say with `encoding`")
    if not guess or len(data[:place].decode()) <= place - _ENOUGH:
        raise NotText(f"not UTF-8 at byte {place:,}")
    return _found_out(data, place)


def _found_out(data: bytes, place: int) -> str:
    # Lines in ASCII are the same in all of them.
    sample = b"\n".join(line for line in data.split(b"\n") if not line.isascii())[:_SAMPLE]
    readings = _found(sample)
    if not readings:
        raise NotText(f"not UTF-8 at byte {place:,}, nor in any usual character set")
    (text, (name, sure)), (_, (other, less)) = [*readings.items(), ("", _NONE)][:2]
    clear = any(sure >= least and sure >= less * times for least, times in _CLEAR)
    if name in _OF_ONE_BYTE:
        clear = clear and not any(map(_is_national, _in_utf_16(data)))
    else:
        clear = clear and len(sample) - len(sample.decode("ascii", "ignore")) >= _LEAST
        clear = clear and (name in _JAPANESE or _KANA.search(text) is None)
    if not _is_likely(text):
        raise NotText(f"not UTF-8 at byte {place:,}, nor in any usual character set; if you know, say with `encoding`")
    if clear:
        return _strictly(data, name, f"UTF-8 at byte {place:,}, nor {name}")
    if less * _SEVERAL > sure and other != _NONE[0]:
        raise NotText(f"not UTF-8 at byte {place:,}; it may be {name} or {other}: say which with `encoding`")
    raise NotText(f"not UTF-8 at byte {place:,}; if it is {name}, say so: `encoding: {name}`")


def _found(sample: bytes) -> dict[str, tuple[str, float]]:
    """Texts that it may be, with their character sets and how sure chardet is of them; the surest first."""
    import chardet

    found: dict[str, tuple[str, float]] = {}
    for each in chardet.detect_all(sample, ignore_threshold=True, compat_names=False, include_encodings=_USUAL):
        name = each["encoding"] or "ascii"
        for text in _readings(sample, name):
            known, sure = found.get(text, (name, each["confidence"]))
            found[text] = min(known, name, key=_USUAL.index), sure
    likely = {text: each for text, each in found.items() if _is_likely(text)}
    return likely or found


def _is_likely(text: str) -> bool:
    beyond = len(text) - len(text.encode("ascii", "ignore"))
    mixed, foreign = len(_MIXED.findall(text)), len(_FOREIGN.findall(text))
    return len(_ODD.findall(text)) * 20 <= beyond and mixed * 2 <= foreign

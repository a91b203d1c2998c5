"""Letters of RTF that are in the character set of their font, as Unicode: kreuzberg takes the file's for all."""

from __future__ import annotations

import codecs
import re
from typing import Final, NamedTuple

#: Code pages by the numbers of character sets that fonts have.
_CODE_PAGES: Final = {
    **{128: 932, 129: 949, 134: 936, 136: 950, 161: 1253, 162: 1254, 163: 1258, 177: 1255, 178: 1256, 186: 1257},
    **{204: 1251, 222: 874, 238: 1250},
}
_FONT: Final = re.compile(rb"\\f(\d+)(?:\\[a-z]+-?\d* ?|\{[^{}]*\}){0,20}?\\fcharset(\d+)")
_DEFAULT: Final = re.compile(rb"\\deff(\d+)")
_OF_FILE: Final = re.compile(rb"\\ansicpg(\d+)")
#: Letters in hexadecimal; a word with its number; text, and whatever else there is.
_TOKEN: Final = re.compile(rb"((?:\\'[0-9A-Fa-f]{2})+)|\\([a-z]+)(-?\d+)? ?|[^\\{}]+|\\?.", re.DOTALL)
#: Bytes of a letter in hexadecimal: \'e9.
_LETTER: Final = 4


class _State(NamedTuple):
    """The state up to the end of a group: the font, and how many letters stand for one that is given in Unicode."""

    font: int
    substitutes: int


def in_unicode(data: bytes) -> bytes:
    """Rewrite a document in Unicode; it stays as it is if its fonts have no other character sets than the file, or if
    there are pictures in bytes. Raises `UnicodeDecodeError`.
    """
    said = _OF_FILE.search(data)
    of_file = int(said[1]) if said else 1252
    fonts = {int(number): _CODE_PAGES.get(int(kind), of_file) for number, kind in _FONT.findall(data)}
    if set(fonts.values()) <= {of_file} or b"\\bin" in data:
        return data
    decoders = {font: codecs.getincrementaldecoder(f"cp{page}")() for font, page in fonts.items() if page != of_file}
    usual = _DEFAULT.search(data)
    default = int(usual[1]) if usual else -1
    out, groups, skipped = bytearray(), [_State(default, 1)], 0
    for token in _TOKEN.finditer(data):
        written, state = token[0], groups[-1]
        decoder = decoders.get(state.font)
        if token[1] and decoder:
            kept, letters = written[: skipped * _LETTER], written[skipped * _LETTER :]
            text = decoder.decode(bytes.fromhex(letters.replace(b"\\'", b"").decode()))
            written = kept + _escaped(text, state.substitutes)
        elif decoder and decoder.getstate()[0] and written.strip(b"\r\n"):
            half, rest = _second_half(token)
            written = _escaped(decoder.decode(half, not half), state.substitutes) + rest
        elif token[2] == b"plain" or (token[2] == b"f" and token[3]):
            groups[-1] = state._replace(font=int(token[3] or default))
        elif token[2] == b"uc" and token[3]:
            groups[-1] = state._replace(substitutes=int(token[3]))
        elif written == b"{":
            groups.append(state)
        elif written == b"}" and len(groups) > 1:
            groups.pop()
        skipped = _left(token, skipped, groups[-1].substitutes)
        out += written
    return bytes(out)


def _second_half(token: re.Match[bytes]) -> tuple[bytes, bytes]:
    """The second half of a letter, which may be plain, and what is behind it."""
    written = token[0].lstrip(b"\r\n")
    if token[2] or written in (b"{", b"}"):
        return b"", written
    return (written[1:], b"") if written.startswith(b"\\") else (written[:1], written[1:])


def _escaped(text: str, substitutes: int) -> bytes:
    if not text:
        return b""
    units = text.encode("utf-16-le", "surrogatepass")
    numbers = (int.from_bytes(units[at : at + 2], "little", signed=True) for at in range(0, len(units), 2))
    return b"\\uc0%s\\uc%d " % (b"".join(b"\\u%d" % number for number in numbers), substitutes)


def _left(token: re.Match[bytes], skipped: int, substitutes: int) -> int:
    """The number of letters that are still to come and stand for one in Unicode."""
    if token[2] == b"u":
        return substitutes
    if token[1]:
        return max(0, skipped - len(token[1]) // _LETTER)
    return 0 if token[2] or token[0] in (b"{", b"}") else max(0, skipped - len(token[0]))

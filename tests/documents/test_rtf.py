"""Letters of RTF are in the character set of their font."""

from __future__ import annotations

import pytest

from instep.pipeline.documents.formats import FormatParser
from instep.pipeline.documents.parse import ParseFailure
from instep.pipeline.documents.rtf import in_unicode

TEXTS = {
    204: ("cp1251", "Прилив"),
    128: ("cp932", "潮汐とは表ソ能"),
    134: ("gbk", "潮汐是"),
    136: ("big5", "潮汐是功"),
    129: ("cp949", "조수"),
    161: ("cp1253", "Παλίρροια"),
    238: ("cp1250", "Žluťoučký"),
    222: ("cp874", "น้ำขึ้น"),
    162: ("cp1254", "İyi"),
}


def read(rtf: bytes) -> str:
    parser = FormatParser.of(None)
    return parser.parse(rtf, "file:///a.rtf", max_line_bytes=1_000_000, max_bytes=1_000_000).text


def document(kind: int, body: bytes, *, page: int = 1252, default: int = 0) -> bytes:
    fonts = b"{\\f0\\fnil\\fcharset0 Arial;}{\\f1\\fnil\\fcharset%d{\\*\\fname Arial;}Arial CYR;}" % kind
    return b"{\\rtf1\\ansi\\ansicpg%d\\deff%d{\\fonttbl%s}%s\\par}" % (page, default, fonts, body)


def in_hexadecimal(text: bytes, *, plain: bool = False) -> bytes:
    return b"".join(
        bytes([each]) if plain and chr(each).isascii() and chr(each).isalpha() else b"\\'%02x" % each for each in text
    )


@pytest.mark.parametrize("kind", sorted(TEXTS))
def test_a_letter_is_in_the_character_set_of_its_font(kind: int) -> None:
    encoding, text = TEXTS[kind]
    for plain in (False, True):  # The second byte of a letter may be a plain one.
        letters = in_hexadecimal(text.encode(encoding), plain=plain)
        assert read(document(kind, b"\\f0 caf\\'e9 {\\f1 %s} \\'e9" % letters)) == f"café {text} é"
        assert read(document(kind, b"\\f1 %s\\f0  \\'e9" % letters)) == f"{text} é"
        assert read(document(kind, letters, default=1)) == text
        assert read(document(kind, b"\\f0 \\'e9\\plain  %s" % letters, default=1)) == f"é {text}"


@pytest.mark.parametrize("kind", sorted(TEXTS))
def test_what_stands_for_a_letter_in_unicode_is_not_one_more(kind: int) -> None:
    encoding, text = TEXTS[kind]
    units = [int.from_bytes(each.encode("utf-16-le"), "little", signed=True) for each in text]
    pairs = list(zip(units, text, strict=True))
    short = b"".join(b"\\u%d\\'%02x" % (unit, letter.encode(encoding)[0]) for unit, letter in pairs)
    assert read(document(kind, b"\\f1 %s" % short)) == text
    whole = b"".join(
        b"\\uc%d\\u%d%s" % (len(bytes_), unit, in_hexadecimal(bytes_))
        for unit, letter in pairs
        if (bytes_ := letter.encode(encoding))
    )
    assert read(document(kind, b"\\f1 %s" % whole)) == text


def test_letters_may_be_cut_by_the_end_of_a_line_and_end_in_a_backslash() -> None:
    assert read(document(128, b"\\f1 \\'92\r\n\\'aa \\'83\r\n\\\\ \\'83\\\\\\'83\r\nA")) == "潮 ソ ソア"
    for end in (b"\\f0 x", b"{x}", b"\\par x"):
        with pytest.raises(ParseFailure):
            read(document(128, b"\\f1 \\'83" + end))


def test_a_document_of_one_character_set_stays_as_it_is() -> None:
    for rtf in (
        document(204, b"\\f1 \\'cf", page=1251),
        b"{\\rtf1 words}",
        document(204, b"{\\pict\\bin3 \\}{}\\f1 x"),
    ):
        assert in_unicode(rtf) == rtf


def test_a_letter_that_its_font_does_not_have_is_a_failure() -> None:
    with pytest.raises(ParseFailure) as caught:
        read(document(128, b"\\f1 \\'82\\'ff"))
    assert caught.value.reason == "a letter that is not in cp932, as its font has it"


def test_fonts_are_looked_for_once_in_a_long_document_on_one_line() -> None:
    """A search that began anew at each of them would take minutes."""
    body = rb"\pard\plain\f0\fs24 tide {\b high}\par" * 20_000
    data = document(204, body)
    assert in_unicode(data).count(b"tide") == 20_000

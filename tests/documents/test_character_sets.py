"""Texts in other character sets than UTF-8: found out where that is clear, failures where it is not."""

from __future__ import annotations

import codecs

import pytest

from instep.pipeline.documents.character_sets import NotText, decoded

GERMAN = (
    "Die Gezeiten sind die Wasserbewegungen der großen Gewässer; für die Schifffahrt sind sie wichtig. Größe und Zeit"
)
FRENCH = (
    "La marée est la variation de la hauteur du niveau des mers, causée par l'effet de la Lune. Où est la plus élevée ?"
)
RUSSIAN = "Прилив и отлив - периодические вертикальные колебания уровня океана, результат изменения положений Луны."
TEXTS = {
    "cp1252": GERMAN,
    "iso8859_1": FRENCH,
    "cp1251": RUSSIAN,
    "koi8_r": RUSSIAN,
    "cp1253": "Παλίρροια είναι φυσικό φαινόμενο που συνίσταται στην περιοδική ανύψωση και πτώση της στάθμης νερού.",
    "shift_jis": "潮汐とは、月や太陽の引力によって起こる海面の昇降現象である。潮の満ち干きは一日に二回起こる。",
    "gbk": "潮汐是海水在天体引潮力作用下所产生的周期性运动。",
    "big5": "潮汐是海水在天體引潮力作用下所產生的週期性運動。",
    "euc_kr": "조수 간만의 차이는 달과 태양의 인력에 의해 생기는 해수면의 주기적인 승강 운동이다.",
}


@pytest.mark.parametrize("encoding", sorted(TEXTS))
@pytest.mark.parametrize("before", [0, 50_000])
def test_the_character_set_of_a_text_is_found_out(encoding: str, before: int) -> None:
    text = "a line of ASCII\n" * (before // 16) + TEXTS[encoding]
    assert decoded(text.encode(encoding)) == text


@pytest.mark.parametrize(
    ("text", "encoding"), [("Größe", "cp1252"), ("Zażółć gęślą jaźń", "iso8859_2"), ("é", "cp850")]
)
def test_a_few_letters_do_not_tell_and_the_reason_says_what_to_do(text: str, encoding: str) -> None:
    with pytest.raises(NotText, match=r"not UTF-8 at byte \d+(; if it is \w+, say so: `encoding: \w+`|, nor in any)"):
        decoded(text.encode(encoding))
    assert decoded(text.encode(encoding), declared=encoding) == text


@pytest.mark.parametrize("text", [f"{GERMAN} 100 €", f"{FRENCH} Œuvre", f"{FRENCH} cœur"])
def test_a_text_that_may_be_in_either_of_two_is_not_indexed_with_wrong_letters(text: str) -> None:
    with pytest.raises(NotText, match="may be cp1252 or iso8859_15"):
        decoded(text.encode("iso8859_15"))
    assert decoded(text.encode("cp1252")) == text
    assert decoded(text.encode("iso8859_15"), declared="iso8859_15") == text


@pytest.mark.parametrize("said", ["undefined", "unicode_escape", "idna", "punycode", "a\0b", "rot13", "none-such"])
def test_what_is_no_character_set_is_not_believed(said: str) -> None:
    assert decoded(b"caf\xe9 x\\n", said=said, declared="cp1252") == "café x\\n"


def test_utf8_comes_before_what_is_declared_and_that_before_a_guess() -> None:
    assert decoded("é".encode(), declared="cp1252") == "é"
    assert decoded(b"\xe9", declared="cp1252") == "é"
    assert decoded(b"caf\xe9", said="iso-8859-1", declared="cp1251") == "café"
    with pytest.raises(NotText, match="neither UTF-8 \\(at byte 0\\) nor cp1252"):
        decoded(b"\x81", declared="cp1252")


def test_utf16_needs_a_mark_or_a_declaration() -> None:
    text = "tide and ebb"
    assert decoded(codecs.BOM_UTF16_LE + text.encode("utf-16-le")) == text
    with pytest.raises(NotText, match="binary, not text: NUL at byte 1"):
        decoded(text.encode("utf-16-le"))
    assert decoded("é und ü".encode("utf-16-le"), declared="utf-16-le") == "é und ü"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", ["tide and ebb\n", "潮汐とは\n", "é und ü"])
def test_a_declared_character_set_of_wide_letters_holds_though_the_bytes_are_valid_utf8(
    encoding: str, text: str
) -> None:
    assert decoded(text.encode(encoding), declared=encoding) == text
    assert decoded(b"tide and ebb", declared=encoding) == "tide and ebb", "UTF-8 has no NUL"
    with pytest.raises(NotText, match=f"not {encoding} at byte"):
        decoded(b"tide\0and ebb\0\0\xd8\xd8", declared=encoding)


def test_what_is_no_text_is_not_taken_for_one() -> None:
    noise = bytes((index * 89 + 7) % 255 + 1 for index in range(5_000))
    with pytest.raises(NotText):
        decoded(noise)

"""Texts in other character sets than UTF-8: found out where that is clear, failures where it is not."""

from __future__ import annotations

import codecs
from contextlib import suppress

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


SHORT = {
    "gb18030": ["北京是中华人民共和国的首都。", "本产品保修期为一年。", "谢谢您的来信,附件是本月的销售报告。"],
    "big5": ["台北是中華民國的首都。", "謝謝您的來信,附件是本月的銷售報告。"],
    "euc_kr": ["서울은 대한민국의 수도이다.", "문의해 주셔서 감사합니다."],
    "euc_jp": ["明日の午前九時に会議室でお会いしましょう。", "お問い合わせありがとうございます。"],
    "shift_jis": ["明日の午前九時に会議室でお会いしましょう。", "お問い合わせありがとうございます。"],
    "koi8_r": ["Встретимся завтра в девять часов утра в офисе.", "Москва - столица России."],
    "cp1251": ["Встретимся завтра в девять часов утра в офисе.", "Москва - столица России."],
    "iso8859_7": ["Παλίρροια είναι φυσικό φαινόμενο."],
    "cp1255": ["גאות ושפל הם תופעה טבעית"],
    "cp874": ["น้ำขึ้นน้ำลงเป็นปรากฏการณ์ธรรมชาติ"],
}


@pytest.mark.parametrize(("encoding", "text"), [(each, text) for each, texts in SHORT.items() for text in texts])
def test_a_sentence_tells_the_character_set(encoding: str, text: str) -> None:
    for whole in (text, f"{text}\n", f"Report 12\n{text}\n"):
        assert decoded(whole.encode(encoding)) == whole


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("Größe", "cp1252"), ("Žluťoučký kůň", "iso8859_2"), ("é", "cp850"), ("東京都", "euc_jp"), ("紫", "euc_jp")],
)
def test_a_few_letters_do_not_tell_and_the_reason_says_what_to_do(text: str, encoding: str) -> None:
    with pytest.raises(NotText, match=r"not UTF-8 at byte \d+; (if it is \S+, say so|it may be \S+ or \S+: say which)"):
        decoded(text.encode(encoding))
    assert decoded(text.encode(encoding), declared=encoding) == text


LATIN = {
    "cp1252": [GERMAN, FRENCH],
    "iso8859_15": [GERMAN, FRENCH],
    "cp1250": ["Zażółć gęślą jaźń", "Žluťoučký kůň", "Árvíztűrő tükörfúrógép"],
    "iso8859_2": ["Zażółć gęślą jaźń", "Žluťoučký kůň", "Árvíztűrő tükörfúrógép"],
    "cp1254": ["İyi günler, teşekkür ederim"],
    "cp1257": ["Ačiū už laišką, atoslūgiai"],
}


@pytest.mark.parametrize(("encoding", "texts"), sorted({**SHORT, **LATIN}.items()))
def test_no_beginning_of_a_text_is_read_with_wrong_letters(encoding: str, texts: list[str]) -> None:
    for text in texts:
        for end in range(3, len(text) + 1):
            with suppress(NotText):
                assert decoded(text[:end].encode(encoding)) == text[:end]


def test_a_text_in_utf8_with_one_wrong_byte_is_not_taken_for_another() -> None:
    text = f"{GERMAN} {GERMAN}".encode()
    with pytest.raises(NotText, match=f"^not UTF-8 at byte {len(text) + 1}$"):
        decoded(text + b" \xff " + text)


@pytest.mark.parametrize("text", [f"{GERMAN} 100 €", f"{FRENCH} Œuvre"])
def test_a_text_that_may_be_in_either_of_two_is_not_indexed_with_wrong_letters(text: str) -> None:
    with pytest.raises(NotText, match="may be iso8859-15 or cp1252"):
        decoded(text.encode("iso8859_15"))
    assert decoded(text.encode("cp1252")) == text
    assert decoded(text.encode("iso8859_15"), declared="iso8859_15") == text


@pytest.mark.parametrize("said", ["undefined", "unicode_escape", "idna", "punycode", "a\0b", "rot13", "none-such"])
def test_what_is_no_character_set_is_not_believed(said: str) -> None:
    assert decoded(b"caf\xe9 x\\n", said=said, declared="cp1252") == "café x\\n"


def test_utf8_comes_before_what_is_declared_that_before_what_the_text_says_and_that_before_a_guess() -> None:
    assert decoded("é".encode(), declared="cp1252") == "é"
    assert decoded(b"\xe9", declared="cp1252") == "é"
    assert decoded(b"caf\xe9", said="cp1251", declared="iso-8859-1") == "café"
    assert decoded(b"caf\x81", said="cp1251", declared="cp1252") == "cafЃ", "cp1252 has no such letter"
    assert decoded(RUSSIAN.encode("cp1251"), said="koi8-r") == RUSSIAN.encode("cp1251").decode("koi8-r")
    with pytest.raises(NotText, match="neither UTF-8 \\(at byte 0\\) nor cp1252"):
        decoded(b"\x81", declared="cp1252")


def test_a_text_that_is_not_in_what_it_says_is_not_guessed_at() -> None:
    with pytest.raises(NotText, match=r"^neither shift_jis, as it says, nor UTF-8 \(at byte 0\); "):
        decoded(RUSSIAN.encode("koi8_r") + b"\xfd", said="shift_jis")
    for said in ("utf-8", "us-ascii", "no-such"):  # Everything is said to be that.
        assert decoded(RUSSIAN.encode("koi8_r"), said=said) == RUSSIAN


@pytest.mark.parametrize(
    ("said", "encoding", "text"),
    [
        ("iso-8859-1", "cp1252", "“café” 5 €"),
        ("gb2312", "gbk", "朱镕基"),
        ("shift_jis", "cp932", "① 髙島屋"),
        ("euc-kr", "cp949", "똠방각하"),
        ("iso-8859-9", "cp1254", "“İstanbul”"),
    ],
)
def test_a_part_of_a_character_set_is_declared_for_all_of_it(said: str, encoding: str, text: str) -> None:
    assert decoded(text.encode(encoding), said=said) == text
    assert decoded(text.encode(encoding), declared=said) == text


def test_letters_of_a_declared_character_set_that_are_utf8_by_chance_are_as_declared() -> None:
    thanks = "谢谢".encode("gbk")
    assert thanks.decode() == "лл"
    assert decoded(thanks, said="gbk") == decoded(thanks, declared="gbk") == "谢谢"
    assert decoded("café".encode(), said="gbk") == decoded("café".encode(), declared="gbk") == "café"
    assert decoded(RUSSIAN.encode(), said="gbk") == RUSSIAN, "so many are not by chance"


@pytest.mark.parametrize("encoding", ["iso-2022-jp", "hz", "utf-7", "iso-2022-kr"])
def test_a_character_set_of_seven_bits_is_as_declared_though_it_is_ascii(encoding: str) -> None:
    text = "조수" if encoding == "iso-2022-kr" else "潮汐"
    data = text.encode(encoding)
    assert data.isascii()
    assert decoded(data, said=encoding) == decoded(data, declared=encoding) == text
    assert decoded(text.encode(), declared=encoding) == text
    with pytest.raises(NotText, match=r"^not iso-2022-jp at byte \d$"):
        decoded(b"\x1b$B!", said="iso-2022-jp")


@pytest.mark.parametrize("encoding", ["iso-2022-jp", "iso-2022-kr"])
def test_a_text_whose_letters_are_escaped_is_found_out(encoding: str) -> None:
    text = f"Report 12\n{TEXTS['euc_kr' if encoding == 'iso-2022-kr' else 'shift_jis']}\n"
    assert decoded(text.encode(encoding)) == text
    for other in ("\x1b[1mbold\x1b[0m", "\x1b$Bx", "price: ~{5}"):
        assert decoded(other.encode()) == other


def test_what_is_utf8_for_sure_is_not_guessed_at() -> None:
    for text in ("\x01\x02", "\x1b$B\x1b(B", "лл"):
        assert decoded(text.encode(), guess=False) == text
    with pytest.raises(NotText, match=r"^binary, not text: a quarter of it are control characters"):
        decoded(b"\x01\x02 file")


def test_utf16_needs_a_mark_or_a_declaration() -> None:
    text = "tide and ebb"
    assert decoded(codecs.BOM_UTF16_LE + text.encode("utf-16-le")) == text
    with pytest.raises(NotText, match="binary, not text: NUL at byte 1"):
        decoded(text.encode("utf-16-le"))
    assert decoded("é und ü".encode("utf-16-le"), declared="utf-16-le") == "é und ü"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", [text.replace(" ", "") for texts in SHORT.values() for text in texts])
def test_utf16_without_a_mark_or_nul_is_not_read_with_wrong_letters(encoding: str, text: str) -> None:
    data = "".join(each for each in text if ord(each) > 127).encode(encoding)
    with pytest.raises(NotText):
        decoded(data)
    assert decoded(data, declared=encoding) == data.decode(encoding)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text", ["tide and ebb\n", "潮汐とは\n", "é und ü", RUSSIAN, TEXTS["gbk"], TEXTS["cp1253"], "Größe"]
)
def test_utf16_that_is_declared_may_have_a_mark_and_either_order(encoding: str, text: str) -> None:
    assert decoded(text.encode(encoding), declared="utf-16") == text
    mark = codecs.BOM_UTF16_LE if encoding == "utf-16-le" else codecs.BOM_UTF16_BE
    assert decoded(mark + text.encode(encoding), declared="utf-16") == text


def test_utf8_with_nul_is_not_taken_for_the_utf16_that_is_declared() -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        with pytest.raises(NotText, match=f"^binary, not text: neither UTF-8 .NUL at byte 4. nor {encoding}$"):
            decoded(b"tide\0and ebb, flood and moon\n\n", declared=encoding)
    assert decoded("tide and ebb, é\n".encode(), declared="utf-16") == "tide and ebb, é\n"


def test_what_may_be_utf8_and_the_declared_utf16_is_neither() -> None:
    with pytest.raises(NotText, match=r"^it may be UTF-8 or utf-16-le: begin it with a byte order mark$"):
        decoded("潮汐とは".encode("utf-16-le"), declared="utf-16-le")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", ["tide and ebb\n", "潮汐とは\n", "é und ü"])
def test_a_declared_character_set_of_wide_letters_holds_though_the_bytes_are_valid_utf8(
    encoding: str, text: str
) -> None:
    assert decoded(text.encode(encoding), declared=encoding) == text
    assert decoded(b"tide and ebb", declared=encoding) == "tide and ebb", "UTF-8 has no NUL"
    with pytest.raises(NotText, match=f"neither UTF-8 .at byte 14. nor {encoding}"):
        decoded(b"tide\0and ebb\0\0\xd8\xd8", declared=encoding)


def test_what_is_no_text_is_not_taken_for_one() -> None:
    noise = bytes((index * 89 + 7) % 255 + 1 for index in range(5_000))
    with pytest.raises(NotText):
        decoded(noise)


@pytest.mark.parametrize("encoding", ["cp850", "cp437"])
@pytest.mark.parametrize(
    "text",
    [
        "Die Straße fährt über große Brücken, und für die Fußgänger gibt es schöne Wege.",
        "Le café était fermé à midi, car le garçon était allé à la fête.",
    ],
)
def test_a_text_in_a_character_set_that_is_not_usual_is_not_read_with_wrong_letters(encoding: str, text: str) -> None:
    with pytest.raises(NotText):
        decoded(text.encode(encoding))
    assert decoded(text.encode(encoding), declared=encoding) == text

"""Mails in all character sets, with parts of all kinds, and those that Outlook saved."""

from __future__ import annotations

import gzip
import pickle
from base64 import b64encode, encodebytes
from collections.abc import Callable
from email.header import Header
from email.message import EmailMessage
from pathlib import Path
from quopri import encodestring

import pytest

from instep.pipeline.documents.formats import FormatParser
from instep.pipeline.documents.parse import Parsed, ParseFailure

TIDE = "Прилив и отлив"
SAMPLES = Path(__file__).parent / "samples"
TEXTS = {
    "shift_jis": "潮汐とは、月や太陽の引力によって起こる海面の昇降現象である。",
    "iso-2022-jp": "潮汐とは、月や太陽の引力によって起こる海面の昇降現象である。",
    "euc-jp": "潮汐とは、月や太陽の引力によって起こる海面の昇降現象である。",
    "windows-1251": "Прилив и отлив - колебания уровня океана",
    "koi8-r": "Прилив и отлив - колебания уровня океана",
    "gb18030": "潮汐是海水在天体引潮力作用下所产生的周期性运动。",
    "gb2312": "潮汐是海水在天体引潮力作用下所产生的周期性运动。",
    "big5": "潮汐是海水在天體引潮力作用下所產生的週期性運動。",
    "euc-kr": "조수 간만의 차이는 달과 태양의 인력에 의해 생긴다.",
    "iso-8859-1": "Größe und Höhe der Gezeiten",
    "utf-8": "Größe, 潮汐, прилив",
}
ENCODED: dict[str, Callable[[bytes], bytes]] = {"base64": encodebytes, "quoted-printable": encodestring, "8bit": bytes}


def parsed(data: bytes, name: str = "a.eml", encoding: str | None = None) -> Parsed:
    parser: FormatParser = pickle.loads(pickle.dumps(FormatParser.of(encoding)))
    return parser.parse(data, f"file:///f/{name}", max_line_bytes=1_000_000, max_bytes=10_000_000)


def failure(data: bytes, name: str = "a.eml", encoding: str | None = None) -> ParseFailure:
    with pytest.raises(ParseFailure) as caught:
        parsed(data, name, encoding)
    return caught.value


def mail(body: bytes, *headers: str) -> bytes:
    return "".join(f"{each}\r\n" for each in headers).encode("utf-8", "surrogateescape") + b"\r\n" + body


def sample(name: str) -> Parsed:
    return parsed((SAMPLES / name).read_bytes(), name)


@pytest.mark.parametrize("transfer", sorted(ENCODED))
@pytest.mark.parametrize("charset", sorted(TEXTS))
def test_a_mail_is_read_in_its_character_set_whatever_its_transfer_encoding(charset: str, transfer: str) -> None:
    text = TEXTS[charset]
    for kind, body in (("plain", f"{text}\n\nmore {text}"), ("html", f"<h1>{text}</h1><p>more {text}</p>")):
        data = mail(
            ENCODED[transfer](body.encode(charset)),
            f"Subject: {Header(text, charset).encode()}",
            f"From: {Header(text[:5], charset).encode()} <a@b.c>",
            "Date: Fri, 27 Nov 2026 10:00:00 +0100",
            f"Content-Type: text/{kind}; charset={charset}",
            f"Content-Transfer-Encoding: {transfer}",
        )
        for encoding in (None, "cp1252"):  # It names its own.
            found = parsed(data, encoding=encoding)
            head = f"Subject: {text}\nFrom: {text[:5]} <a@b.c>\nDate: 2026-11-27 10:00:00+01:00"
            first = f"# {text}" if kind == "html" else text
            assert (found.title, found.text) == (text, f"{head}\n\n{first}\n\nmore {text}")
            assert found.kind == ("markdown" if kind == "html" else "text")


def test_words_of_a_header_that_are_cut_within_a_letter_are_put_together() -> None:
    letters = "潮汐とは".encode("shift_jis")
    for cut in range(1, len(letters)):
        words = " ".join(f"=?Shift_JIS?B?{b64encode(part).decode()}?=" for part in (letters[:cut], letters[cut:]))
        assert parsed(mail(b"x", f"Subject: Re: {words} tide")).title == "Re: 潮汐とは tide"


def test_a_header_may_have_words_in_several_character_sets_and_languages() -> None:
    subject = "=?ISO-8859-1*de?Q?Gr=F6=DFe_und?= =?utf-8?b?IMO8YmVy?=\r\n =?windows-1251?q?=FF=E4?= end"
    assert parsed(mail(b"x", f"Subject: {subject}")).title == "Größe und überяд end"


@pytest.mark.parametrize(("charset", "encoding"), [("utf-8", None), ("koi8-r", None), ("", "koi8-r")])
def test_a_header_that_is_not_encoded_is_in_the_character_set_of_the_text_or_of_the_project(
    charset: str, encoding: str | None
) -> None:
    text = TIDE.encode(charset or "koi8-r")
    subject = text.decode("utf-8", "surrogateescape")
    data = mail(text, f"Subject: {subject}", *([f"Content-Type: text/plain; charset={charset}"] if charset else []))
    assert parsed(data, encoding=encoding).text == f"Subject: {TIDE}\n\n{TIDE}"


def test_a_part_that_is_not_in_its_character_set_is_a_failure() -> None:
    data = mail("潮汐".encode("euc_jp") + b"\xff", "Subject: x", "Content-Type: text/plain; charset=big5")
    assert failure(data).reason.startswith("neither big5, as it says, nor UTF-8 (at byte 2)")
    assert failure(data).stage == "parse"


def test_html_that_names_no_character_set_in_its_header_may_name_one_itself() -> None:
    page = '<meta charset="windows-1251"><p>дни</p>'.encode("cp1251")
    for kind in ("text/html", "text/html; charset=us-ascii", "text/html; charset=unknown-8bit"):
        assert parsed(mail(page, "Subject: x", f"Content-Type: {kind}")).text == "Subject: x\n\nдни"


def built() -> EmailMessage:
    made = EmailMessage()
    made["Subject"], made["To"], made["Cc"] = "Tides", "d@e.f, g@h.i", "j@k.l"
    return made


def test_of_alternatives_the_plain_one_is_read_if_it_is_not_empty() -> None:
    made = built()
    made.set_content("plain words")
    made.add_alternative("<p>html words</p>", subtype="html")
    assert parsed(made.as_bytes()).text == "Subject: Tides\nTo: d@e.f, g@h.i\nCc: j@k.l\n\nplain words"
    made = built()
    made.set_content(" \n")
    made.add_alternative("<p>html words</p>", subtype="html")
    assert parsed(made.as_bytes()).text.endswith("\n\nhtml words")


def test_of_attachments_the_names_are_read_and_of_attached_mails_the_subjects() -> None:
    made, inner = built(), built()
    inner.replace_header("Subject", "Inner größe")
    inner.set_content("inner words")
    made.set_content("words")
    made.add_attachment(b"hidden words", maintype="text", subtype="plain", filename="größe.txt")
    made.add_attachment("more hidden words", filename="plain.txt", disposition="inline")
    made.add_attachment(inner)
    made.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="b.pdf")
    for each in made.iter_attachments():
        if each.get_filename() == "b.pdf":
            each.replace_header("Content-Disposition", 'attachment; filename="=?utf-8?q?gr=C3=B6=C3=9Fer=2Epdf?="')
    found = parsed(made.as_bytes())
    assert "Attachments: größe.txt, plain.txt, Inner größe, größer.pdf\n" in found.text
    assert found.text.endswith("\n\nwords")


def test_all_texts_that_are_shown_are_read_in_their_order() -> None:
    made = built()
    made.set_content("first")
    made.make_mixed()
    for text, kind in (("<p>second</p>", "html"), ("third", "plain")):
        part = EmailMessage()
        part.set_content(text, subtype=kind)
        made.attach(part)
    assert parsed(made.as_bytes()).text.endswith("\n\nfirst\n\nsecond\n\nthird")


def test_a_mail_with_no_more_than_headers_is_found_by_them() -> None:
    assert parsed(b"Subject: Only this\r\n\r\n")[:3] == ("text", "Only this", "Subject: Only this")
    assert parsed(b"no mail at all\n")[1:3] == ("a.eml", "no mail at all")


def test_a_mail_of_ten_thousand_parts_in_each_other_fails_alone() -> None:
    heads = b"".join(b'Content-Type: multipart/mixed; boundary="%d"\n\n--%d\n' % (each, each) for each in range(10_000))
    assert failure(heads + b"\n").reason == "its parts are nested too deeply"


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        (
            "a.msg",
            "text",
            "Subject: test pièce jointe 1\nFrom: Nicolas1 23456 <nicolas1.23456@free.fr>\nTo: nicolas1.23456@free.fr\n"
            "Date: 2009-04-22 14:36:33+00:00\nAttachments: test-unicode.doc, pj1.txt\n\ncontenu",
        ),
        ("html.msg", "markdown", "Subject: Subject öäü Subject\n\nHTML автоматически"),
        ("rtf.msg", "text", "Subject: Tides in RTF\nTo: Dora <d@e.f>\n\nEbb and flōod. Прилив.\n\nSecond line."),
    ],
)
def test_a_mail_that_outlook_saved_is_read_as_others_are(name: str, kind: str, text: str) -> None:
    found = sample(name)
    assert (found.kind, found.text) == (kind, text)
    assert found.title == text.partition("\n")[0].removeprefix("Subject: ")
    assert parsed(gzip.compress((SAMPLES / name).read_bytes()), f"{name}.gz") == found


def test_a_mail_that_an_old_outlook_saved_is_in_the_character_set_of_its_language() -> None:
    found = sample("big5.msg")
    assert found.title == "Alfresco MSG format testing ( MSG 格式測試 )"
    assert "From: Tests Chang@FT (張毓倫)\nTo: Tests Chang@FT (張毓倫) <tests.chang@fengttt.com>\n" in found.text
    assert "恭喜 HQ 保全課 陳奎良 高票當選雲林縣總工會" in found.text


@pytest.mark.parametrize("name", ["a.msg", "big5.msg", "html.msg", "rtf.msg"])
def test_a_file_of_outlook_that_is_cut_off_or_none_at_all_fails_alone(name: str) -> None:
    data = (SAMPLES / name).read_bytes()
    for part in (data[:600], data[: len(data) // 3], b"no file of Outlook", data[:512] + b"\xff" * 3_000):
        found = failure(part, "a.msg")
        assert found.reason.startswith("cannot be read: ")
        assert found.quoting


@pytest.mark.parametrize("kind", ["multipart/mixed", "multipart/mixed; boundary=b", "multipart/alternative"])
def test_a_mail_whose_parts_cannot_be_told_apart_is_a_failure_and_not_empty(kind: str) -> None:
    data = mail(b"--other\r\nContent-Type: text/plain\r\n\r\nthe tide\r\n--other--\r\n", f"Content-Type: {kind}")
    assert "its parts cannot be told apart" in failure(data).reason


@pytest.mark.parametrize(
    "kind", ["text/markdown", "text/enriched", "text/x-patch", 'text/plain; name="body.txt"', "text/plain"]
)
def test_a_body_is_read_whatever_kind_of_text_it_is(kind: str) -> None:
    assert "the tide" in parsed(mail(b"the tide", f"Content-Type: {kind}")).text


def test_what_is_said_to_programs_alone_is_not_read() -> None:
    made = built()
    made.add_alternative("BEGIN:VCALENDAR", subtype="calendar")
    assert "VCALENDAR" not in parsed(made.as_bytes()).text


def test_a_date_that_no_calendar_has_stays_as_it_is_written() -> None:
    data = mail(b"the tide", "Date: Mon, 1 Jan 99999999999999999999 00:00:00 +0000")
    assert "99999999999999999999" in parsed(data).text


def test_a_header_that_cannot_be_read_is_named() -> None:
    assert failure(mail(b"the tide", "Subject: =?utf-8?b?gA==?= hi")).reason.startswith("in its header Subject: ")

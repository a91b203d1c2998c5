"""Words that are put in order here are those that PostgreSQL makes of their text."""

from __future__ import annotations

import random
from collections.abc import Sequence

import psycopg
import pyarrow as pa
import pytest

from instep.targets.postgres import lexemes
from tests.servers.postgres import PostgresServer
from tests.targets.postgres.conftest import DATABASE

_LAST_PLACE = 16_383


def as_text(words: str) -> str:
    """`printer:1 on:2 fire:3`"""
    return " ".join(f"{each}:{min(at, _LAST_PLACE)}" for at, each in enumerate(words.split(), 1))


def kept(server: PostgresServer, texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """What the server has of both: its own text, of words as we hand them over and of their text."""
    ours = lexemes.tsvectors(pa.array(texts, pa.string())).to_pylist()
    with psycopg.connect(server.url(DATABASE).replace("+psycopg", ""), autocommit=True) as session:
        session.execute("CREATE TEMP TABLE words (row int, ours tsvector)")
        with session.cursor().copy("COPY words FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "bytea"])
            for each in enumerate(ours):
                copy.write_row(each)
        found = session.execute("SELECT ours::text FROM words ORDER BY row").fetchall()
        theirs = [session.execute("SELECT %s::tsvector::text", [as_text(each)]).fetchone() for each in texts]
    return [text for (text,) in found], [each[0] for each in theirs if each]


@pytest.mark.parametrize(
    "texts",
    [
        ["", "a", "b a b", "aa a b aa", ""],
        ["é e z 日本 日 本 \U0001f600 a", "zz z zzz"],
        ["word " * 300, "word " * 255 + "word", "w"],
        ["x " * 20_000, " ".join(f"w{each}" for each in range(17_000))],
        [],
    ],
    ids=["some", "letters", "one word often", "more than have places", "none"],
)
def test_words_have_the_order_and_the_places_that_the_server_gives_them(
    server: PostgresServer, texts: list[str]
) -> None:
    ours, theirs = kept(server, [each.strip() for each in texts])
    assert ours == theirs


def test_words_of_many_texts_are_those_of_each(server: PostgresServer) -> None:
    drawn = random.Random(7)
    known = [f"{'abcdefgh'[each % 8]}{each % 40}" for each in range(200)]
    texts = [" ".join(drawn.choices(known, k=drawn.choice([0, 1, 2, 3, 17, 64, 200]))) for _ in range(200)]
    ours, theirs = kept(server, texts)
    assert ours == theirs

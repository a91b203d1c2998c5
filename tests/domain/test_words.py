"""Where words end."""

from __future__ import annotations

from instep.domain.words import SEPARATORS, parted
from instep.targets.postgres.chunks import WORDS_OF_ROW


def test_words_are_parted_at_punctuation() -> None:
    assert parted("_ctypes.LoadLibrary don't").split() == ["ctypes", "LoadLibrary", "don't"]
    assert parted("数据、é-ü").split() == ["数据、é", "ü"]
    assert len(parted(SEPARATORS)) == len(SEPARATORS)
    assert not parted(SEPARATORS).strip()


def test_postgresql_parts_them_at_the_same() -> None:
    quoted = SEPARATORS.replace("%", "")
    assert f"'{quoted}', repeat(' ', {len(quoted)})" in WORDS_OF_ROW

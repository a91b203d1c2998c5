"""Names of indexes as names of collections, and texts in filters."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import UserError
from instep.targets.milvus import location
from instep.targets.milvus.target import MilvusTarget
from instep.testing.target_rows import BUCKETS, DIMENSIONS

INDEXES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.@=-]{0,20}", fullmatch=True).filter(lambda name: ".." not in name)


@given(INDEXES)
def test_every_name_has_a_collection_of_its_own(name: str) -> None:
    coded = location.collection(name)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", coded)
    assert location.index(coded) == name
    assert not coded.startswith(location.STATE)


@pytest.mark.parametrize(
    ("name", "coded"),
    [
        ("Document", "Document"),
        ("Document__1a2b3c4d", "Document__1a2b3c4d"),
        ("Document@next-1", "Document_x40_next_x2d_1"),
        ("a_x40_b", "a_x5f_x40_b"),
        ("7seas", "_x37_seas"),
    ],
)
def test_most_names_stay_unchanged(name: str, coded: str) -> None:
    assert location.collection(name) == coded


def test_a_name_too_long_for_milvus_is_refused() -> None:
    with pytest.raises(UserError, match="too long"):
        location.collection("a" + "-" * 100)


def test_texts_in_filters_stay_texts(embedded: MilvusTarget) -> None:
    embedded.create("D", DIMENSIONS, BUCKETS)
    odd = ['"', "'", "\\", '\\"', "a\nb", "\t", "\r", "\0", "\x7f", '" or chunk_id != "', "{x}", "ü數😀", ""]
    for id in odd:
        assert embedded.row("D", id) is None
    assert embedded.writer("D", 1).existing(odd).num_rows == 0

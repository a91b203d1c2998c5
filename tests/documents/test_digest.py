"""Digests of chunks: the ledger keeps them, so they never change."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pytest

from instep.pipeline.documents.diff import chunk_digests, document_digests, key_of

HEX = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(6)]


def digest(ids: list[str], hashes: list[str]) -> int:
    chunks = chunk_digests(pa.array(ids, pa.string()), pa.array(hashes, pa.string()))
    return int(document_digests(chunks, np.zeros(len(ids), np.int64), 1)[0])


def test_digests_are_those_of_ever() -> None:
    assert digest(HEX[:3], HEX[3:]) == 4583027338997118602
    assert digest(["id", ""], ["é", HEX[0]]) == -210124244478309739
    assert digest([], []) == 0


def test_the_order_of_chunks_does_not_matter() -> None:
    assert digest(HEX[:3], HEX[3:]) == digest(HEX[2::-1], HEX[:2:-1])


@pytest.mark.parametrize(
    ("ids", "hashes"),
    [
        (HEX[:3], [HEX[4], HEX[3], HEX[5]]),  # Two have changed places.
        (HEX[3:], HEX[:3]),  # Ids and hashes have.
        (HEX[:2], HEX[3:5]),
        ([*HEX[:2], "x"], HEX[3:]),
        (HEX[:3], [*HEX[3:5], HEX[5].upper()]),
        (HEX[:3], [*HEX[3:5], HEX[5] + " "]),
    ],
)
def test_other_chunks_have_another_digest(ids: list[str], hashes: list[str]) -> None:
    assert digest(ids, hashes) != digest(HEX[:3], HEX[3:])


def test_texts_of_any_length_and_parts_of_arrays_have_keys() -> None:
    texts = pa.array(["", "x", *HEX, "é" * 32])
    keys = key_of(texts)
    assert len(set(keys.tolist())) == len(texts)
    assert key_of(texts.slice(2, 3)).tolist() == keys[2:5].tolist()
    assert key_of(texts.slice(1, 4)).tolist() == keys[1:5].tolist()

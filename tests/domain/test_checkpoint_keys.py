from __future__ import annotations

import pytest

from instep.domain.refs import CheckpointKey, CheckpointKeyError, PartitionRef

USER, MERGE_REQUEST = PartitionRef.parse("User"), PartitionRef.parse("MergeRequest@100")
NESTED = PartitionRef.parse("MergeRequest@42/9970")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (CheckpointKey(USER), "global.User"),
        (CheckpointKey(USER, 0, 5), "global.User.p0of5"),
        (CheckpointKey(MERGE_REQUEST), "ns.100.MergeRequest"),
        (CheckpointKey(MERGE_REQUEST, 3, 5), "ns.100.MergeRequest.p3of5"),
        (CheckpointKey(NESTED, 3, 5), "ns.42/9970.MergeRequest.p3of5"),
    ],
)
def test_the_text_of_a_key(key: CheckpointKey, text: str) -> None:
    assert str(key) == text


@pytest.mark.parametrize(("index", "count"), [(5, 5), (-1, 5), (1, 0)])
def test_a_slice_beyond_its_count_cannot_be_made(index: int, count: int) -> None:
    with pytest.raises(CheckpointKeyError):
        CheckpointKey(USER, index, count)

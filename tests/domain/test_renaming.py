"""Documents under names that they had before: which are the same."""

from __future__ import annotations

import pytest

from instep.domain.identity import as_named_now, renamed


@pytest.mark.parametrize("place", ["/home/me/work", "/srv/checkout-7"])
def test_an_absolute_name_is_the_same_document_as_its_path_in_the_project(place: str) -> None:
    now = ["project:///docs/a.md", "project:///docs/deep/a.md", "project:///../corpus/b.md", "project:///a.md"]
    before = [f"file://{place}/{end}" for end in ("docs/a.md", "docs/deep/a.md", "a.md")] + ["file:///corpus/b.md"]
    pairs = dict(zip(before, (now[0], now[1], now[3], now[2]), strict=True))
    assert renamed(before, now) == pairs
    assert renamed(now, before) == {new: old for old, new in pairs.items()}


def test_a_deleted_document_keeps_its_old_name_and_takes_no_other() -> None:
    before = {"file:///p/README.md": 1, "file:///p/docs/README.md": 2, "file:///p/gone.md": 3, "project:///kept.md": 4}
    now = ["project:///README.md", "project:///kept.md", "project:///new.md"]
    assert as_named_now(before, now) == {
        "project:///README.md": 1,
        "file:///p/docs/README.md": 2,
        "file:///p/gone.md": 3,
        "project:///kept.md": 4,
    }


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (["file:///p/a.md"], ["file:///q/a.md"]),
        (["project:///a.md"], ["project:///docs/a.md"]),
        (["https://host/p/a.md"], ["project:///a.md"]),
        (["file:///p/xa.md"], ["project:///a.md"]),
        # It has been there all along.
        (["file:///p/a.md", "project:///a.md"], ["project:///a.md"]),
        ([], ["project:///a.md"]),
    ],
)
def test_other_documents_have_not_been_renamed(before: list[str], now: list[str]) -> None:
    assert renamed(before, now) == {}

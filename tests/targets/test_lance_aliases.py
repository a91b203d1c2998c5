"""Promotion of Lance indexes step by step: what a crash leaves, who comes in between, what a reader finds."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from instep.errors import Conflict, Fenced, InstepError, Transient, UserError
from instep.targets.lance import LanceTarget
from instep.targets.lance.location import Location
from instep.testing.target_rows import BUCKETS, DIMENSIONS

#: More calls of the place than any promotion makes.
MANY = 20


@pytest.fixture(params=["folder", "object store"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> LanceTarget:
    """Also through the code for object stores, which lance can have in a folder."""
    made = LanceTarget(f"file-object-store://{tmp_path}/x" if request.param == "object store" else str(tmp_path / "x"))
    for physical in ("A", "B", "C"):
        made.create(physical, DIMENSIONS, BUCKETS)
    return made


def lying_there(target: LanceTarget) -> list[str]:
    """Everything beside the datasets."""
    folder = Path(target.uri.removeprefix("file-object-store://"))
    return sorted(each.name for each in folder.iterdir() if each.is_file())


def alias_file(epoch: int) -> str:
    return f"Document.alias-{epoch:010d}.json"


class Interposed:
    """Does something else at call number `at` of the place's methods: before it takes effect, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], *, at: int, after: bool) -> None:
        self._patch = monkeypatch
        self._act = act
        self._left = at
        self._after = after
        self.acted = False

    def __enter__(self) -> Interposed:
        for name in ("files", "create", "read", "remove"):
            self._patch.setattr(Location, name, self._wrapped(getattr(Location, name)))
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _wrapped(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self._left -= 1
            if self._left != 0:
                return method(*args)
            done = method(*args) if self._after else None
            self.acted = True
            self._act()
            return done if self._after else method(*args)

        return call


def crash() -> None:
    raise Transient("crash")


def fails_to_promote(target: LanceTarget, physical: str, epoch: int) -> bool:
    try:
        target.promote("Document", physical, epoch)
    except InstepError:
        return True
    return False


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_step_leaves_something_served_and_the_next_try_ends_well(
    target: LanceTarget, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    seen = []
    for at in range(1, MANY):
        old, new, epoch = ("A", "B", 2 * at) if at % 2 else ("B", "A", 2 * at)
        target.promote("Document", old, epoch)
        with Interposed(monkeypatch, crash, at=at, after=after) as interposed:
            if fails_to_promote(target, new, epoch + 1):
                seen.append("new" if target.served("Document") == new else "old")
        if not interposed.acted:
            break
        assert target.served("Document") in (old, new)
        target.promote("Document", new, epoch + 1)
        assert target.served("Document") == new
        assert lying_there(target) == [alias_file(epoch + 1)]
    assert set(seen) == {"old", "new"}
    assert at < MANY - 1


def test_a_newer_promotion_at_any_step_of_an_older_one_stays(
    target: LanceTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []
    for at in range(1, MANY):
        epoch = 10 * at
        target.promote("Document", "A", epoch)
        newer = partial(target.promote, "Document", "C", epoch + 2)
        with Interposed(monkeypatch, newer, at=at, after=False) as interposed:
            refused.append(fails_to_promote(target, "B", epoch + 1))
        if not interposed.acted:
            break
        assert target.served("Document") == "C"
        assert alias_file(epoch + 2) in lying_there(target)
        with pytest.raises(Fenced):
            target.promote("Document", "B", epoch + 1)
    # Only who had made sure of everything before was told that it went well.
    assert True in refused
    assert refused == sorted(refused, reverse=True)
    target.promote("Document", "A", 10 * MANY)
    assert lying_there(target) == [alias_file(10 * MANY)]


def test_another_index_of_the_same_epoch_at_any_step_is_a_conflict_for_one_of_them(
    target: LanceTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(1, MANY):
        theirs: list[bool] = []
        other = partial(_promotes, target, "B", at, theirs)
        with Interposed(monkeypatch, other, at=at, after=False) as interposed:
            mine: list[bool] = []
            _promotes(target, "A", at, mine)
        if not interposed.acted:
            break
        assert mine != theirs
        assert target.served("Document") == ("A" if mine == [True] else "B")
    assert at < MANY - 1


def _promotes(target: LanceTarget, physical: str, epoch: int, told: list[bool]) -> None:
    try:
        target.promote("Document", physical, epoch)
    except Conflict:
        told.append(False)
    else:
        told.append(True)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2])
def test_a_reader_meets_a_promotion_at_any_step(
    target: LanceTarget, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    target.promote("Document", "A", 1)
    with Interposed(monkeypatch, lambda: target.promote("Document", "B", 2), at=at, after=after) as interposed:
        assert target.served("Document") in ("A", "B")
        assert interposed.acted
    assert target.served("Document") == "B"


def test_a_listing_that_missed_both_files_of_a_promotion_is_repeated(
    target: LanceTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.promote("Document", "A", 1)
    listings = iter([[], ["Document.alias-0000000001.json"]])
    monkeypatch.setattr(Location, "files", lambda _: next(listings))
    assert target.served("Document") == "A"


def test_a_listing_that_never_agrees_with_the_files_is_not_taken_for_nothing_served(
    target: LanceTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Location, "files", lambda _: ["Document.alias-0000000001.json"])
    with pytest.raises(Transient):
        target.served("Document")


def test_files_of_promotions_that_were_superseded_go(target: LanceTarget) -> None:
    for epoch in range(1, 30):
        target.promote("Document", "ABC"[epoch % 3], epoch)
    assert lying_there(target) == [alias_file(29)]


def test_epochs_are_compared_as_numbers(target: LanceTarget) -> None:
    for epoch in (9, 10, 9_999_999_999, 10_000_000_000, 2**62):
        target.promote("Document", "A", epoch)
        assert lying_there(target) == [alias_file(epoch)]
        assert target.served("Document") == "A"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"physical": "../x"}'])
def test_a_damaged_alias_has_an_unknown_owner_and_is_refused_not_replaced(target: LanceTarget, damage: bytes) -> None:
    target.promote("Document", "A", 1)
    file = Path(target.uri.removeprefix("file-object-store://")) / alias_file(1)
    file.write_bytes(damage)
    calls: list[Callable[[], object]] = [
        lambda: target.served("Document"),
        lambda: target.owner_of("Document"),
        lambda: target.mine("Document"),
        lambda: target.promote("Document", "B", 2),
        lambda: target.claim("Document", of=""),
    ]
    for call in calls:
        with pytest.raises(UserError, match=f"{file.name} says neither what it serves nor whose it is"):
            call()
    assert file.read_bytes() == damage
    file.unlink()
    target.promote("Document", "B", 2)
    assert target.served("Document") == "B"


# -- in a folder -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = LanceTarget(str(tmp_path / "index"))
    made.create("A", DIMENSIONS, BUCKETS)
    made.create("B", DIMENSIONS, BUCKETS)
    return Path(made.uri)


def fails(number: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_a_file_system_without_hard_links(folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(Path, "hardlink_to", fails(number))
    target = LanceTarget(str(folder))
    target.promote("Document", "A", 1)
    target.promote("Document", "A", 1)
    with pytest.raises(Conflict):
        target.promote("Document", "B", 1)
    target.promote("Document", "B", 2)
    assert target.served("Document") == "B"
    assert lying_there(target) == [alias_file(2)]


@pytest.mark.parametrize(
    ("step", "number"), [("os.fsync", errno.ENOSPC), ("os.fsync", errno.EIO), ("pathlib.Path.hardlink_to", errno.EIO)]
)
def test_a_file_that_could_not_be_made_whole_is_not_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    target = LanceTarget(str(folder))
    with monkeypatch.context() as patch:
        patch.setattr(step, fails(number))
        with pytest.raises(UserError if number == errno.ENOSPC else Transient):
            target.promote("Document", "A", 1)
    assert lying_there(target) == []
    assert target.served("Document") is None


def test_others_may_read_the_alias_if_they_may_read_the_index(folder: Path) -> None:
    LanceTarget(str(folder)).promote("Document", "A", 1)
    (folder / "ordinary").touch()
    assert (folder / alias_file(1)).stat().st_mode == (folder / "ordinary").stat().st_mode

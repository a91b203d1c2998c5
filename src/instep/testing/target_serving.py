"""Promises of a target about promotion: readers notice nothing, and zombies change nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from instep.domain.words import text_query
from instep.errors import Conflict, Fenced
from instep.targets.document_target import DocumentTarget, Showing
from instep.testing.target_rows import BUCKETS, DIMENSIONS, OnOneIndex, put


class ServingContract(OnOneIndex):
    @pytest.fixture
    def staged(self, target: DocumentTarget) -> tuple[str, str, str]:
        """Three physical indexes with one document each, to be served."""
        names = ("Document__1", "Document__2", "Document__3")
        for physical in names:
            target.create(physical, DIMENSIONS, BUCKETS)
            put(target, physical, {"a": ["common words"]}, epoch=1, attempt="1")
        return names

    def test_promote_is_idempotent_and_moves(self, target: DocumentTarget, staged: tuple[str, str, str]) -> None:
        assert target.served("Document") is None
        for epoch, physical in enumerate([staged[0], staged[0], staged[1], staged[0]], start=9):
            for _ in range(2):
                target.promote("Document", physical, epoch)
                assert target.served("Document") == physical

    def test_readers_of_its_store_find_what_is_served(
        self, target: DocumentTarget, staged: tuple[str, str, str]
    ) -> None:
        """By its own aliases or views, if it has them."""
        found = target.shows if isinstance(target, Showing) else lambda alias: target.served(alias) is not None
        assert not found("Document")
        target.promote("Document", staged[0], 5)
        assert found("Document")
        assert not found("Document@v2")
        target.promote("Document", None, 6)
        assert not found("Document")

    def test_aliases_do_not_touch_each_other(self, target: DocumentTarget, staged: tuple[str, str, str]) -> None:
        aliases = {"D": 0, "D.alias-0000000007": 1, "D.alias": 2, "Document": 0, "D-1": 1}
        for epoch, (alias, number) in enumerate(aliases.items(), start=1):
            target.promote(alias, staged[number], 10 - epoch)
        assert {alias: target.served(alias) for alias in aliases} == {
            alias: staged[number] for alias, number in aliases.items()
        }
        target.promote("D", staged[2], 10)
        assert [target.served(alias) for alias in aliases] == [staged[number] for number in (2, 1, 2, 0, 1)]

    def test_an_older_epoch_never_overrides_a_newer_one(
        self, target: DocumentTarget, staged: tuple[str, str, str]
    ) -> None:
        """However late a zombie comes, and though it only repeats what once was right."""
        old, new, other = staged
        target.promote("Document", old, 99)
        target.promote("Document", new, 100)
        for epoch, physical in [(99, old), (99, new), (2, other), (1, new)]:
            with pytest.raises(Fenced):
                target.promote("Document", physical, epoch)
            assert target.served("Document") == new

    def test_an_epoch_that_went_on_serving_the_same_is_not_overridden_either(
        self, target: DocumentTarget, staged: tuple[str, str, str]
    ) -> None:
        served, other, _ = staged
        target.promote("Document", served, 3)
        target.promote("Document", served, 5)
        with pytest.raises(Fenced):
            target.promote("Document", other, 4)
        assert target.served("Document") == served

    def test_one_epoch_serves_one_index(self, target: DocumentTarget, staged: tuple[str, str, str]) -> None:
        target.promote("Document", staged[0], 5)
        with pytest.raises(Conflict):
            target.promote("Document", staged[1], 5)
        target.promote("Document", staged[0], 5)
        assert target.served("Document") == staged[0]

    def test_a_promotion_can_be_taken_back(self, target: DocumentTarget, staged: tuple[str, str, str]) -> None:
        """Nothing is served again, as before; and its promoter cannot do so again under its old epoch."""
        target.promote("Document", staged[0], 5)
        for _ in range(2):
            target.promote("Document", None, 6)
            assert target.served("Document") is None
        with pytest.raises(Fenced):
            target.promote("Document", staged[0], 5)
        with pytest.raises(Conflict):
            target.promote("Document", staged[0], 6)
        assert target.served("Document") is None
        target.promote("Document", staged[1], 7)
        assert target.served("Document") == staged[1]

    def test_of_promoters_at_once_the_newest_epoch_wins(
        self, target: DocumentTarget, staged: tuple[str, str, str]
    ) -> None:
        """Finishers of three epochs, two of each, all at the same moment."""
        for round_ in range(10):
            start = threading.Barrier(6)

            def promote(epoch: int, physical: str, start: threading.Barrier = start) -> bool:
                start.wait()
                try:
                    target.promote("Document", physical, epoch)
                except Fenced:
                    return False
                return True

            promoters = [(3 * round_ + number, staged[number - 1]) for number in (1, 2, 3) for _ in range(2)]
            with ThreadPoolExecutor(6) as pool:
                done = list(pool.map(lambda each: promote(*each), promoters))
            assert done[4:] == [True, True]
            assert target.served("Document") == staged[2]

    def test_readers_never_notice_a_promotion(self, target: DocumentTarget, staged: tuple[str, str, str]) -> None:
        target.promote("Document", staged[0], 1)
        stop, answers, errors = threading.Event(), [], []

        def read() -> None:
            while not stop.is_set():
                try:
                    physical = target.served("Document")
                    assert physical is not None
                    found = target.search(
                        physical, entity="D", text=text_query("common"), vector=None, mode="text", limit=1
                    )
                    answers.append(len(found))
                except Exception as error:
                    errors.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(2, 40):
                target.promote("Document", staged[number % 3], number)
        finally:
            while not answers and not errors:
                pass
            stop.set()
            reader.join()
        assert errors == []
        assert set(answers) == {1}

"""Promises of a target to several ledgers that keep their indexes in one place: none touches what another made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from instep.domain.waves import Mark
from instep.errors import Fenced, UserError
from instep.targets.ownership import NotOurs, Owner
from instep.testing import table_rows, target_rows

OURS, THEIRS = Owner("11111111-aaaa"), Owner("22222222-bbbb")


class OwnershipContract(ABC):
    """For targets of either kind: `DocumentOwnership` and `TableOwnership` say how an index is made and written."""

    #: Names of indexes for the alias `Document`.
    names: ClassVar[tuple[str, str]] = ("Document__1", "Document__2")

    @abstractmethod
    def make(self, target: Any, physical: str) -> None: ...

    @abstractmethod
    def write(self, target: Any, physical: str, base: int, *, epoch: int, attempt: str) -> None:
        """Stage a row and commit it, as of a fence."""

    @pytest.fixture
    def ours(self, target: Any) -> Any:
        return target.owned_by(OURS)

    @pytest.fixture
    def theirs(self, target: Any) -> Any:
        return target.owned_by(THEIRS)

    @pytest.fixture
    def index(self, theirs: Any) -> str:
        """Theirs, with a row, and served."""
        name = self.names[0]
        self.make(theirs, name)
        self.write(theirs, name, theirs.fence(name, 5), epoch=5, attempt="1")
        theirs.promote("Document", name, 5)
        return name

    def test_a_created_index_and_its_alias_name_their_owner(self, ours: Any, theirs: Any, index: str) -> None:
        assert (ours.owner, theirs.owner) == (OURS, THEIRS)
        for each in (ours, theirs):
            assert [each.owner_of(name) for name in (index, "Document")] == [THEIRS.id, THEIRS.id]
        assert theirs.mine(index)
        assert theirs.mine("Document")
        assert not ours.mine(index)
        assert not ours.mine("Document")

    def test_a_missing_index_has_no_owner(self, ours: Any) -> None:
        for name in ("Document", "Document__9"):
            assert ours.owner_of(name) is None
            assert ours.mine(name)

    def writes(self, ours: Any, index: str) -> Iterator[Callable[[], object]]:
        """All that would change their index or alias."""
        yield lambda: self.make(ours, index)
        yield lambda: ours.fence(index, 9)
        yield lambda: ours.fence(index, 9, [Mark("s", 9, b"")])
        yield lambda: ours.maintain(index)
        yield lambda: ours.maintain(index, full=True)
        yield lambda: ours.drop(index)
        yield lambda: ours.promote("Document", None, 9)
        yield lambda: ours.promote("Document", index, 9)
        yield lambda: ours.promote("Other", index, 9)

    def test_an_index_of_another_ledger_is_never_written_dropped_nor_promoted(
        self, ours: Any, theirs: Any, index: str
    ) -> None:
        for write in self.writes(ours, index):
            with pytest.raises(NotOurs) as refused:
                write()
            assert THEIRS.id[:8] in str(refused.value)
            assert "instep adopt Document" in str(refused.value)
        assert theirs.rows(index) == 1
        assert theirs.served("Document") == index
        assert theirs.served("Other") is None
        self.write(theirs, index, theirs.fence(index, 6), epoch=6, attempt="2")

    def test_an_alias_of_another_is_not_moved_to_an_index_of_its_own(self, ours: Any, theirs: Any, index: str) -> None:
        own = self.names[1]
        self.make(ours, own)
        for epoch in (1, 5, 9):
            with pytest.raises(NotOurs):
                ours.promote("Document", own, epoch)
        assert theirs.served("Document") == index
        assert theirs.owner_of("Document") == THEIRS.id
        ours.promote("Mine", own, 1)
        assert (ours.served("Mine"), ours.owner_of("Mine")) == (own, OURS.id)

    def test_an_alias_that_serves_nothing_is_still_its_owners(self, ours: Any, theirs: Any, index: str) -> None:
        own = self.names[1]
        self.make(ours, own)
        theirs.promote("Document", None, 6)
        with pytest.raises(NotOurs):
            ours.promote("Document", own, 9)
        theirs.promote("Document", index, 7)
        assert theirs.served("Document") == index

    def test_only_ones_own_are_leftovers(self, ours: Any, theirs: Any, index: str) -> None:
        own = self.names[1]
        self.make(ours, own)
        assert ours.leftovers("Document", idle_seconds=0) == [own]
        assert theirs.leftovers("Document", idle_seconds=0) == []
        ours.drop(own)
        assert not ours.exists(own)

    def test_a_reader_may_read_an_index_of_any_owner(self, ours: Any, index: str) -> None:
        assert ours.exists(index)
        assert ours.rows(index) == 1
        assert ours.served("Document") == index

    # -- adopting --------------------------------------------------------------------------------

    def test_a_claim_takes_it_over_with_all_that_it_holds(self, ours: Any, theirs: Any, index: str) -> None:
        for _ in range(2):
            ours.claim(index, of=THEIRS.id)
            ours.claim("Document", of=THEIRS.id)
        assert [ours.owner_of(name) for name in (index, "Document")] == [OURS.id, OURS.id]
        assert ours.served("Document") == index
        assert ours.rows(index) == 1
        with pytest.raises(Fenced):
            ours.fence(index, 4)
        ours.promote("Document", index, 6)
        self.write(ours, index, ours.fence(index, 6), epoch=6, attempt="2")
        with pytest.raises(Fenced):
            ours.promote("Document", index, 5)

    def test_the_former_owner_is_refused_after_a_claim_and_a_fence(self, ours: Any, theirs: Any, index: str) -> None:
        """Also what it had begun: its commit is of an older epoch than the claim's fence."""
        base = theirs.fence(index, 6)
        ours.claim(index, of=THEIRS.id)
        ours.claim("Document", of=THEIRS.id)
        ours.fence(index, 7)
        with pytest.raises((Fenced, NotOurs)):
            theirs.commit(index, base=base, epoch=6, attempt="2", staged=[], marks=[])
        for write in self.writes(theirs, index):
            with pytest.raises(NotOurs):
                write()
        assert ours.rows(index) == 1
        assert ours.served("Document") == index

    def test_claiming_an_index_that_another_ledger_owns_now_is_refused(
        self, ours: Any, theirs: Any, index: str
    ) -> None:
        for name in (index, "Document"):
            for of in ("", "33333333-cccc"):
                with pytest.raises(NotOurs):
                    ours.claim(name, of=of)
            assert theirs.owner_of(name) == THEIRS.id
        with pytest.raises(UserError):
            ours.claim("Document__9", of="")

    # -- from before owners were known ------------------------------------------------------------

    def test_an_index_without_owner_belongs_to_the_ledger_that_knows_it(self, target: Any) -> None:
        index = self.names[0]
        self.make(target, index)
        target.promote("Document", index, 5)
        assert [target.owner_of(name) for name in (index, "Document")] == ["", ""]
        before = target.owned_by(Owner(OURS.id, frozenset({index})))
        stranger = target.owned_by(THEIRS)
        for write in self.writes(stranger, index):
            with pytest.raises(NotOurs):
                write()
        assert stranger.leftovers("Document", idle_seconds=0) == []
        assert before.mine(index)
        assert before.mine("Document")
        self.write(before, index, before.fence(index, 6), epoch=6, attempt="1")
        before.promote("Document", index, 6)
        assert [target.owner_of(name) for name in (index, "Document")] == [OURS.id, OURS.id]
        with pytest.raises(NotOurs):
            target.owned_by(Owner(THEIRS.id, frozenset({index}))).fence(index, 7)

    def test_an_alias_that_names_no_owner_is_whose_that_is_which_it_serves(self, target: Any) -> None:
        index, other = self.names
        self.make(target, index)
        target.promote("Document", index, 5)
        before = target.owned_by(Owner(OURS.id, frozenset({index})))
        before.fence(index, 6)
        assert target.owner_of("Document") == OURS.id
        self.make(before, other)
        before.promote("Document", other, 7)
        assert target.owner_of("Document") == OURS.id

    def test_an_index_without_owner_can_be_claimed(self, target: Any) -> None:
        index = self.names[0]
        self.make(target, index)
        target.promote("Document", index, 5)
        ours = target.owned_by(OURS)
        ours.claim(index, of="")
        ours.claim("Document", of="")
        assert [target.owner_of(name) for name in (index, "Document")] == [OURS.id, OURS.id]
        with pytest.raises(NotOurs):
            target.owned_by(THEIRS).claim(index, of="")


class DocumentOwnership(OwnershipContract):
    def make(self, target: Any, physical: str) -> None:
        target.create(physical, target_rows.DIMENSIONS, target_rows.BUCKETS)

    def write(self, target: Any, physical: str, base: int, *, epoch: int, attempt: str) -> None:
        staged = target_rows.replaced(target, physical, base, {attempt: ["words"]}, epoch=epoch)
        target.commit(physical, base=base, epoch=epoch, attempt=attempt, staged=[staged], marks=[])


class TableOwnership(OwnershipContract):
    def make(self, target: Any, physical: str) -> None:
        target.create(physical, table_rows.SPECS)

    def write(self, target: Any, physical: str, base: int, *, epoch: int, attempt: str) -> None:
        row = table_rows.Node(int(attempt), "one", 1)
        staged = target.writer(physical, base).stage(table_rows.change([row]))
        target.commit(physical, base=base, epoch=epoch, attempt=attempt, staged=[staged], marks=[])

    def writes(self, ours: Any, index: str) -> Iterator[Callable[[], object]]:
        yield from super().writes(ours, index)
        yield lambda: ours.sweep(index, "i", epoch=9)
        yield lambda: ours.delete_scope(index, "1/", epoch=9)

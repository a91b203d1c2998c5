"""Names and ownership of indexes: several ledgers may share a place, and none touches what another made."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, cast

from instep.errors import UserError


@dataclass(frozen=True, slots=True)
class Owner:
    """A ledger, as targets know it: by its id. `before` are physical indexes that it made before targets were told
    whose they are: these name no owner, and are its own.
    """

    id: str = ""
    before: frozenset[str] = frozenset()


#: The owner of a target that is used without a ledger. Its indexes have no owner.
NO_OWNER = Owner()


class NotOurs(UserError):
    """An index or an alias belongs to another ledger: it is not written, dropped, nor pointed elsewhere."""


class Ownable(Protocol):
    """A target that tells whose its indexes and aliases are. An alias and a physical index never have the same name.

    What is made, fenced or promoted is the `owner`'s from then on. Raise `NotOurs`, and change nothing, where the index
    or alias is another ledger's: `create`, `fence`, `promote` (the alias, and what it is to serve), `maintain`,
    `refine`, `drop`, `sweep` and `delete_scope`. `leftovers` names only what is the owner's. A commit needs no look: a
    claim is followed by a fence, whose epoch is newer than all before it. Reading is free.
    """

    @property
    def owner(self) -> Owner:
        """The project that writes here, and where its ledger is."""

    def owned_by(self, owner: Owner) -> Self:
        """The same target, used for this ledger."""

    def owner_of(self, name: str) -> str | None:
        """Id of the ledger that has this physical index or this alias: empty for one that names none, None when there
        is no such thing. An alias that names none is whose that is which it serves; if that is gone, there is none.
        """

    def mine(self, name: str) -> bool:
        """Whether it is the owner's, or not there."""

    def claim(self, name: str, *, of: str) -> None:
        """Make a physical index or an alias the owner's, in one step, if it still is `of`'s (empty: without an owner).
        Rows, epochs and what is served stay as they are. Raises `NotOurs` if it is someone else's by now, `UserError`
        when there is no such thing. Again it changes nothing.
        """


class OwnedIndexes(ABC):
    """The base of targets for ownership. They are dataclasses with a field `owner`."""

    owner: Owner

    @property
    @abstractmethod
    def shown(self) -> str:
        """The place, without secrets."""

    @abstractmethod
    def owner_of(self, name: str) -> str | None: ...

    @abstractmethod
    def served(self, alias: str) -> str | None: ...

    @abstractmethod
    def _indexes(self, prefix: str) -> Sequence[str]:
        """Names of physical indexes that begin so, sorted; maybe those of other tables, too."""

    @abstractmethod
    def _idle(self, physical: str) -> float:
        """Seconds since something was written to an index, or since it was made."""

    def leftovers(self, alias: str, *, idle_seconds: float) -> list[str]:
        """See `IndexTarget.leftovers`."""
        served = self.served(alias)
        made = [each for each in self._indexes(f"{alias}__") if alias_owns(alias, each) and each != served]
        return [each for each in made if self.mine(each) and self._idle(each) >= idle_seconds]

    def owned_by(self, owner: Owner) -> Self:
        return cast("Self", replace(cast("Any", self), owner=owner))

    def mine(self, name: str) -> bool:
        return self.is_mine(name, self.owner_of(name))

    def is_mine(self, name: str, found: str | None) -> bool:
        """`found`: what `owner_of` says of it."""
        if found is None or found == self.owner.id:
            return True
        before = self.owner.before
        return not found and bool(before) and (name in before or self.served(name) in before)

    def demand(self, name: str) -> str:
        """Check the owner. Raises `NotOurs` for another ledger's; returns the owner after a write."""
        return self.taken(name, self.owner_of(name))

    def taken(self, name: str, found: str | None) -> str:
        """The owner after a write, given the owner before it. Raises `NotOurs` if that is another ledger."""
        if not self.is_mine(name, found):
            raise not_ours(name, found or "", self.owner, where=self.shown)
        return self.owner.id

    def claimed(self, name: str, of: str, found: str) -> str:
        """The same for a claim."""
        if found not in (of, self.owner.id):
            raise not_ours(name, found, self.owner, where=self.shown)
        return self.owner.id


def not_ours(name: str, found: str, owner: Owner, *, where: str) -> NotOurs:
    entity = name.partition("__")[0]
    whose = f"belongs to ledger {found[:8]}, not to this one ({owner.id[:8] or 'none'})"
    if not found:
        whose = "was made by another ledger, or by none"
    return NotOurs(
        f"{name!r} {whose}",
        where=where,
        hint=f"If its ledger is lost, or it is to move here: instep adopt {entity}. "
        "Else give the entity another name, or its target another place.",
    )


def alias_owns(alias: str, physical: str) -> bool:
    """Whether a physical index was made for this alias, and not for another whose name begins alike."""
    return physical.startswith(f"{alias}__") and "__" not in physical[len(alias) + 2 :]


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@=-]{0,199}\Z")


def checked_name(name: str) -> str:
    """The name itself if it can name an index or an alias."""
    if not _NAME.match(name) or ".." in name:
        raise UserError(
            f"{name!r} cannot name an index",
            hint="Use letters, digits, '_', '-', '.', '@' and '=', at most 200 characters, starting with a letter "
            "or a digit.",
        )
    return name

"""Versions of a table that keeps them, and what lies between two."""

from __future__ import annotations

from typing import Final, NamedTuple

#: The beginning of a locator that says between which versions a document was changed.
CHANGED: Final = "changed in "


#: Why rows are compared that nobody has changed.
OTHER_COLUMNS: Final = "columns of it are other ones than before, by the same names or by others"

_OTHER_TABLE: Final = "it is another table than the one that was read, though at the same place"

#: In an id of a table, before what sets its columns apart from those of its version.
COLUMNS: Final = "#"
#: Between a version and the digest of its commit, in a text.
_COMMIT: Final = "!"


class TableVersion(NamedTuple):
    """`table` is the table's own id: another one at the same place has another, and so has one whose columns became
    other ones without a version of its own. `number` is that of Delta's version, or of Iceberg's snapshot (-1: there is
    none yet). `commit` is a digest of Delta's commit, where it is at hand: a table that was restored from a copy gives
    the same numbers once more.
    """

    table: str
    number: int
    commit: str = ""

    def __str__(self) -> str:
        return f"{self.table}@{self.number}{_COMMIT if self.commit else ''}{self.commit}"

    def same(self, other: TableVersion | None) -> bool:
        """Whether it is this very version, as far as that can be told."""
        if other is None or self[:2] != other[:2]:
            return False
        return self.commit == other.commit or not (self.commit and other.commit)

    def demand_same_table(self, before: TableVersion) -> None:
        """Raises `Unfollowable` where this is not the table of the version before."""
        if before.table == self.table:
            return
        one, other = (each.table.partition(COLUMNS)[0] for each in (before, self))
        raise Unfollowable(OTHER_COLUMNS if one == other else _OTHER_TABLE)

    @classmethod
    def of_files(cls, digest: str) -> TableVersion:
        """The version of a table that keeps none, by a digest of its files."""
        return cls(digest, 0)

    @classmethod
    def parse(cls, text: str) -> TableVersion:
        head, _, commit = text.partition(_COMMIT)
        table, _, number = head.rpartition("@")
        return cls(table, int(number), commit)


class Between(NamedTuple):
    """All that was changed after one version, up to another. As a text it is the locator of a changed document."""

    since: int
    until: int

    @property
    def locator(self) -> str:
        return f"{CHANGED}{self.since}..{self.until}"

    @classmethod
    def of(cls, locator: str) -> Between:
        since, _, until = locator.removeprefix(CHANGED).partition("..")
        return cls(int(since), int(until))


class VersionWindow(NamedTuple):
    """The rows that a table has in a version, `until`; with `since`, those that were changed after that version."""

    since: int | None
    until: int

    @property
    def between(self) -> Between:
        assert self.since is not None, "all rows of a version are not what was changed"
        return Between(self.since, self.until)

    def __str__(self) -> str:
        return str(self.until) if self.since is None else f"{self.since} to {self.until}"


class Unfollowable(Exception):
    """A version is gone, or what was changed since cannot be told; the message says why. All rows are compared then."""

"""Promotion rules: whether a build may replace the served one, which stays unless the build is good enough.

The measure is the loss: documents that are served now and that the source still has. The best evidence are those *as
served*: served at the version that the source has now. They were indexed before, so they have to be indexed again. For
others, which have changed since or have failed at this version already, that is not known, and their served version is
gone from the source. (The list of failures is no evidence: a build that is refused fills it.)

Losses of an index that no user has allowed: each may be small, but a few hours of them are not.

A single run cannot see that. When a source disappears gradually (a share that is unmounted, `rm -r` beside a worker
that watches), each look finds a few documents less. So recent losses count together with those of the next job. A
user's permission (`--allow-deletes`) resets the count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

from instep.domain.texts import amount

#: At least this share of the documents has to go in, unless the project says otherwise.
NEEDED = 0.95

#: Why an empty build does not replace a served one.
EMPTY = "the rebuild is empty; the served index stays. If its source is empty indeed: --allow-empty"


def nothing_written(units: int, read: int, written: int, what: str) -> str | None:
    """The reason why a first build is not served: it wrote nothing though the source was not empty. `units` were
    planned, 0 if not counted; `read` are those that came, without later deletes. None if it may be served.
    """
    if written or not (units or read):
        return None
    if not read:
        return f"{amount(units, what)} were counted, but none could be read, so nothing is served"
    return (
        f"nothing was written of {amount(read, what)}, so nothing is served. If there is rightly nothing in them: "
        "--allow-empty"
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """The documents by which a build is judged: how many, how many failed, and the share that must succeed."""

    documents: int
    failed: int
    which: str = "documents"
    needed: float = NEEDED

    @property
    def enough(self) -> bool:
        return self.documents - self.failed >= self.needed * self.documents

    def __str__(self) -> str:
        needed = f"at least {self.needed * 100:g}% must be indexed"
        return f"{self.failed:,} of {self.documents:,} {self.which} failed ({needed})"


class Tally(NamedTuple):
    """Numbers of documents by which a build is judged, each with how many of them failed: of all that it had to read;
    of those that are served and still `there`; of those among them that are `kept` at the version that is served.
    """

    documents: int
    failed: int
    there: int
    there_failed: int
    kept: int
    kept_failed: int

    def plus(self, other: Tally) -> Tally:
        """The sum of both, which have no document in common."""
        return Tally(*(here + there for here, there in zip(self, other, strict=True)))

    def judged(self, needed: float = NEEDED) -> Judged:
        """A build in which enough of all documents went in is good. Else it is judged by those that are as served, if
        these are at least half of what is served and still there; else by all that are served and still there; else,
        when the source has nothing of that any more, by all documents.
        """
        whole = Judged(self.documents, self.failed, needed=needed)
        if whole.enough or not self.there:
            return whole
        if 2 * self.kept >= self.there:
            return Judged(self.kept, self.kept_failed, "documents that are served as the source has them", needed)
        return Judged(self.there, self.there_failed, "documents that are served", needed)


def judged(
    served: Mapping[str, str], listed: Mapping[str, str], failed: Collection[str], needed: float = NEEDED
) -> Judged:
    """`served` and `listed` give versions by URI: of what is served now, and of all that the build had to read."""
    there = [uri for uri in served if uri in listed]
    kept = [uri for uri in there if served[uri] == listed[uri]]
    counted = ((len(uris), sum(uri in failed for uri in uris)) for uris in (listed, there, kept))
    return Tally(*chain.from_iterable(counted)).judged(needed)


#: How long a loss counts, in milliseconds, unless the project says otherwise.
LOSS_WINDOW: Final = 6 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Loss:
    """Units (documents, or rows of a table) that are gone, and rows (chunks) that documents have lost which are still
    there.
    """

    units: int = 0
    rows: int = 0

    def __add__(self, other: Loss) -> Loss:
        return Loss(self.units + other.units, self.rows + other.rows)

    def __bool__(self) -> bool:
        return bool(self.units or self.rows)


NO_LOSS: Final = Loss()


class PartLoss(NamedTuple):
    """The loss of a part of a job; `allowed`: a person had permitted any loss."""

    loss: Loss
    allowed: bool


def lost_by(parts: Iterable[PartLoss]) -> Loss:
    """The loss of all these parts, the oldest first, since the last one whose losses a person permitted."""
    lost = NO_LOSS
    for part in parts:
        lost = NO_LOSS if part.allowed else lost + part.loss
    return lost

"""The transaction of a commit: rows first, the journal last, all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from instep.domain.waves import Mark
from instep.errors import Conflict
from instep.postgres.connection import Session
from instep.targets.postgres import staging
from instep.targets.postgres.journal import Journal
from instep.targets.postgres.registry import Index


class _Landed(Exception):
    """Another try of this commit was quicker."""

    def __init__(self, version: int) -> None:
        self.version = version


def commit(
    session: Session,
    index: Index,
    move: Callable[[], list[str]],
    *,
    base: int,
    epoch: int,
    attempt: str,
    marks: Sequence[Mark],
    scope: str = "",
) -> int:
    """See `DocumentTarget.commit`. `move` puts in what was staged, and returns the tables of staged rows that nobody
    needs once this is committed.
    """
    journal = Journal(session, index)
    used: list[str] = []
    try:
        with session.transaction():
            _demand_new(journal, attempt)
            journal.look(scope, epoch, marks, since=base)
            used = move()
            journal.take(scope, epoch)
            _demand_new(journal, attempt)
            version = journal.commit(scope, epoch, attempt, marks, base=base)
    except _Landed as landed:
        version = landed.version
    except Conflict:
        # Its staged rows are gone: because they are in, maybe.
        found = journal.find(attempt)
        if found is None:
            raise
        version = found
    staging.remove(session, used)
    return version


def _demand_new(journal: Journal, attempt: str) -> None:
    version = journal.find(attempt)
    if version is not None:
        raise _Landed(version)

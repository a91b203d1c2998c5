"""Is what is stored what the log leads to?"""

from __future__ import annotations

from instep.domain.state import State
from instep.ledger.differences import differences
from instep.ledger.memory import log
from instep.ledger.memory.tables import Tables
from instep.ledger.port import Verified


def verify(tables: Tables) -> Verified:
    return _compared(tables, log.state(tables))


def rebuild(tables: Tables) -> Verified:
    replayed = log.state(tables)
    verified = _compared(tables, replayed)
    tables.state = replayed
    return verified


def _compared(tables: Tables, replayed: State) -> Verified:
    return Verified(len(tables.log), dict(replayed.skipped), differences(tables.state, replayed))

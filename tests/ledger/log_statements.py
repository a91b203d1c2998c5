"""What is said to a database about events, instances and wants, when there are many of them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, event

from instep.domain.counts import Counts
from instep.domain.events import (
    Event,
    InstanceBuilding,
    InstanceCreated,
    InstanceLive,
    InstanceServed,
    InstanceTainted,
    WantCanceled,
    WantCreated,
)
from instep.domain.instances import Reason
from instep.domain.refs import Naming, PartitionRef, event_instance_id
from instep.ledger.ledger import Ledger
from tests.contracts.ledger import START
from tests.contracts.ledger.building import canonical_of

_MANY = 1_000
_REF = PartitionRef.parse("Document@7")


def fill_log(ledger: Ledger) -> None:
    """So many instances and wants in a ledger without events."""
    naming = ledger.naming()
    for start in range(0, _MANY, 200):
        ledger.events.append(
            [each for number in range(start, start + 200) for each in _life(number, 5 * number + 1, naming)]
        )


def _life(number: int, sequence: int, naming: Naming) -> list[Event]:
    """Events that an instance lives through, the first of which has this sequence."""
    ref = f"Document@{number}"
    uuid = event_instance_id(ref, "", sequence, naming)
    return [
        InstanceCreated(ref=ref, reason=Reason.FIRST),
        InstanceBuilding(instance=uuid, job="job", target=START, fingerprint={}),
        InstanceLive(instance=uuid, job="job", watermark=START, physical="index", counts=Counts()),
        InstanceServed(instance=uuid),
        WantCreated(want=f"{number}", refs=(ref,), as_of=START + 1),
    ]


def log_statements(ledger: Ledger, engine: Engine) -> list[tuple[str, Any]]:
    """Statements of a few appends and of all that is read, with their parameters; INSERTs are left out."""
    said: list[tuple[str, Any]] = []

    def record(_: object, __: object, statement: str, values: Any, *___: object) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            said.append((statement, values[0] if isinstance(values, list) else values))

    event.listen(engine, "before_cursor_execute", record)
    live = canonical_of(ledger, _REF)
    ledger.events.append([InstanceTainted(instance=live.uuid), WantCanceled(want="7")])
    ledger.events.append([WantCreated(want="again", refs=(str(_REF),))])
    ledger.events.collect([], ["7"])
    ledger.events.rows(4 * _MANY, 10)
    ledger.instances.newest(_REF)
    for open_only in (False, True):
        ledger.wants.newest(open_only=open_only, limit=5)
        ledger.wants.newest(ref=_REF, open_only=open_only, limit=5)
    ledger.parts.of_epoch(_REF, 1)
    ledger.parts.reaching(_REF, live.uuid, 1)
    event.remove(engine, "before_cursor_execute", record)
    return said

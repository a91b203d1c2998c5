"""`/api/queues`: the queues of the project; lease, acknowledge and fail their keys."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final

from fastapi import APIRouter
from pydantic import BeforeValidator, Field

from instep.answers.answer import Answer
from instep.answers.queues import GivenKey, KeyOutcome, QueueStatus
from instep.api.dependencies import BY, ProjectInstep
from instep.api.paging import Page
from instep.api.problems import responses
from instep.api.requests import WHOLE, Body, whole
from instep.domain.pending_queue import QueueKey
from instep.ledger.key_leases import KeyFailure
from instep.queues.consumers import MAX_HOLDER, Ack

router = APIRouter(prefix="/queues", tags=["queues"])

#: Keys of one request.
MOST_KEYS: Final = 5_000
#: Milliseconds of a lease.
_SHORTEST: Final = 1_000
_LONGEST: Final = 7 * 24 * 60 * 60 * 1_000

#: Of keys and participants. Others are none that a queue can have.
_WHOLE_NUMBERS: Final = range(-(2**63), 2**63)

_Whole = Annotated[int, WHOLE]

_HALF: Final = re.compile("[\ud800-\udfff]")


def _exact(value: object) -> QueueKey:
    """A whole number, or a text."""
    key = whole(value)
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise ValueError("it is a whole number, exactly, or a text")  # noqa: TRY004 - what pydantic makes a 422
    # JSON has an escape for it, but no answer could name such a key.
    if isinstance(key, str) and _HALF.search(key):
        raise ValueError("it has half a character (a lone surrogate)")
    return key


_Key = Annotated[QueueKey, BeforeValidator(_exact, json_schema_input_type=int | str)]
_Fence = Annotated[
    Annotated[int, Field(ge=0, le=2**53), WHOLE] | None, Field(description="The fence of the key, as `next` gave it.")
]


class Queue(Answer):
    name: str
    engine: str


class NextKeys(Body):
    """A request for keys. Without `lease` keys are only read: for a single consumer, or to look."""

    limit: Annotated[int, Field(ge=1, le=MOST_KEYS), WHOLE] = 100
    lease: Annotated[
        Annotated[int, Field(ge=_SHORTEST, le=_LONGEST), WHOLE] | None,
        Field(description="Milliseconds for which the keys are reserved."),
    ] = None
    by: Annotated[str, Field(min_length=1, max_length=MAX_HOLDER, description="The name of the consumer.")] = BY
    participants: list[_Whole] = Field(
        default=[], max_length=1_000, description="Only keys that concern one of these participants."
    )
    legacy: Annotated[bool, Field(description="Read the anti-join, whatever the phase.")] = False


class DoneKey(Body):
    key: _Key
    fence: _Fence = None


class FailedKey(DoneKey):
    error: Annotated[str, Field(max_length=100_000, description="What went wrong.")] = ""


class DoneKeys(Body):
    keys: list[DoneKey] = Field(min_length=1, max_length=MOST_KEYS)


class FailedKeys(Body):
    keys: list[FailedKey] = Field(min_length=1, max_length=MOST_KEYS)


@router.get("")
def list_queues(instep: ProjectInstep) -> Page[Queue]:
    """The queues of the project."""
    return Page(items=[Queue(name=name, engine=each.engine) for name, each in instep.project.queues.items()])


@router.get("/{name}", responses=responses(404, 409))
def read_queue(instep: ProjectInstep, name: str) -> QueueStatus:
    """Phase of a queue, and the keys in it."""
    with instep.queue(name) as queue:
        return queue.status()


@router.post("/{name}/next", responses=responses(404, 409))
def next_keys(instep: ProjectInstep, name: str, request: NextKeys) -> Page[GivenKey]:
    """Take pending keys: fresh ones first, at most a tenth that failed before. Give each back to `ack` or `fail`, with
    its fence.
    """
    participants = [each for each in request.participants if each in _WHOLE_NUMBERS]
    if request.participants and not participants:
        return Page(items=[])
    with instep.queue(name) as queue:
        given = queue.next(
            request.limit,
            lease=None if request.lease is None else timedelta(milliseconds=request.lease),
            by=request.by,
            participants=participants,
            legacy=request.legacy,
        )
    return Page(items=[GivenKey.of(each) for each in given])


@router.post("/{name}/ack", responses=responses(404, 409))
def acknowledge_keys(instep: ProjectInstep, name: str, request: DoneKeys) -> Page[KeyOutcome]:
    """Acknowledge keys: they are covered from then on. Each key has an outcome; one that is refused stops no other."""
    with instep.queue(name) as queue:
        outcomes = queue.ack(Ack(each.key, each.fence) for each in request.keys)
    return Page(items=[KeyOutcome.model_validate(each) for each in outcomes])


@router.post("/{name}/fail", responses=responses(404, 409))
def fail_keys(instep: ProjectInstep, name: str, request: FailedKeys) -> Page[KeyOutcome]:
    """Record failures of keys: each is tried again after 5 minutes, then 10, 20, … up to 24 hours, and parked after 12
    attempts.
    """
    with instep.queue(name) as queue:
        outcomes = queue.fail(KeyFailure(each.key, each.fence, each.error) for each in request.keys)
    return Page(items=[KeyOutcome.model_validate(each) for each in outcomes])

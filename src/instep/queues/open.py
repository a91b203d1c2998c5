"""Open the engine of a project's queue; check its declaration; switch its readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from instep.errors import Missing, UserError
from instep.project import Project, Queue
from instep.queues.engines.queue_engine import PendingStore
from instep.queues.key_ranges import Parts
from instep.queues.queue_state import recall, remember_reader

if TYPE_CHECKING:
    from instep.project.queues import Engine


#: SQLite has one writer at a time, and a waiting one asks again after a tenth of a second at most. A statement of
#: PostgreSQL keeps others from vacuuming. One of ClickHouse blocks nothing, and reads a table as a whole
#: that is not sorted by the key: there are as few as memory allows, of which a key takes some 450 bytes.
PARTS: Final[dict[Engine, Parts]] = {
    "clickhouse": Parts(10_000_000),
    "chdb": Parts(10_000_000),
    "postgresql": Parts(200_000),
    "sqlite": Parts(20_000, pause=0.12),
}


def declared_queue(project: Project, name: str) -> Queue:
    """Find a declared queue. Raises `UserError` for one that there is not."""
    if name not in project.queues:
        hint = f"Declared: {', '.join(project.queues)}." if project.queues else "Declare it under `queues`."
        raise Missing(f"no queue is named {name!r}", hint=hint)
    return project.queues[name]


def open_queue(project: Project, name: str, *, oldest_first: bool = False) -> PendingStore:
    """The queue where its tables are; its user closes it. `oldest_first`: whatever order it is read in as a rule."""
    queue = declared_queue(project, name)
    address, spec = project.queue_address(name), queue.spec(name)
    if oldest_first:
        spec = replace(spec, newest_first=False)
    match queue.engine:
        case "sqlite":
            from instep.queues.engines.sqlite import SqlitePending

            return SqlitePending(Path(address), spec)
        case "postgresql":
            from instep.queues.engines.postgres import PostgresPending

            return PostgresPending(address, queue.schema_, spec)
        case "clickhouse" | "chdb":
            from instep.queues.engines.clickhouse.store import ClickHousePending

            return ClickHousePending(address, spec)


def demand_readable(store: PendingStore) -> None:
    """Raises `UserError` when there is nothing of the queue yet, or when it is not what is declared by now."""
    demand_created(store)
    try:
        store.demand_same()
    except UserError as error:
        name = store.spec.name
        raise UserError(
            f"the declaration of the queue {name} has changed since it was created",
            where=error.where,
            hint=f"Undo the change, or give the new one another name; or drop it with `instep queue drop {name}`, and"
            " create and backfill it again.",
        ) from None


def demand_created(store: PendingStore) -> None:
    """Raises `UserError` when there is nothing of the queue in the database yet."""
    if not store.exists():
        name = store.spec.name
        raise UserError(f"the queue {name} is not there yet", hint=f"Make it with: instep queue create {name}")


def queue_checks(project: Project) -> Mapping[str, Callable[[], str]]:
    """Checks for the doctor: a function for each queue, which describes what it found or raises `UserError`."""
    return {f"queue {name}": partial(_look, partial(open_queue, project, name)) for name in project.queues}


def _look(opened: Callable[[], PendingStore]) -> str:
    with closing(opened()) as store:
        store.check()
        return f"its tables have what it needs{', and it is there' if store.exists() else ''}"


def switch(store: PendingStore, now: int) -> bool:
    """Let `next` read the queue from now on. Refused unless it was equal to its anti-join not long ago. Returns whether
    anything changed.
    """
    demand_created(store)
    store.check()
    words, name = recall(store), store.spec.name
    if words.switched:
        return False
    if (reason := words.why_not_switch(now)) is not None:
        why, command = reason
        raise UserError(f"the queue {name} {why}", hint=f"Run: instep queue {command} {name}")
    remember_reader(store, switched=True)
    return True


def switch_back(store: PendingStore) -> bool:
    """Let `next` read the anti-join from now on. Returns whether anything changed."""
    demand_created(store)
    if not recall(store).switched:
        return False
    remember_reader(store, switched=False)
    return True

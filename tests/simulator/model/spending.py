"""The model of what jobs spend, and of what waves reserve."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from instep.domain.money import Bill, Granted, Spent, month_of
from instep.ledger.embedding_batches import SubmittedBatch
from tests.simulator.model.tables import BatchRow, Reservation, Tables

#: How long the batch of a worker that is gone stays.
KEEP = 20 * 24 * 3_600_000


def reserve(tables: Tables, asked: Reservation, limit: int | None) -> Granted:
    month = month_of(tables.now())
    for each in [*tables.reservations.values()]:
        is_left = each.worker_id == asked.worker_id or each.worker_id not in tables.workers
        is_left = is_left and each.wave not in tables.embedding_batches
        if each.entity == asked.entity and each.wave != asked.wave and is_left:
            pay(tables, each.wave, None, 0)
    spent = sum(each.cost for key, each in tables.spending.items() if key[:2] == (asked.entity, month))
    others = [each for each in tables.reservations.values() if each.wave != asked.wave]
    held = sum(each.cost for each in others if (each.entity, each.month) == (asked.entity, month))
    made = tables.reservations.get(asked.wave)
    if made is None:
        left = asked.cost if limit is None else max(0, limit - spent - held)
        made = replace(asked, month=month, cost=min(asked.cost, left))
        tables.reservations[asked.wave] = made
    return Granted(made.month, made.cost, made.cost < asked.cost, spent, held)


def pay(tables: Tables, wave: str, bill: Bill | None, cost: int) -> None:
    made = tables.reservations.pop(wave, None)
    if made is not None:
        key = made.entity, made.month, made.job_id
        more = Spent(0, 0, made.cost) if bill is None else Spent(bill.texts, bill.tokens, cost)
        tables.spending[key] = tables.spending.get(key, Spent()).plus(more)


def of_jobs(tables: Tables, job_ids: Collection[str]) -> Mapping[str, Mapping[str, Spent]]:
    found: dict[str, dict[str, Spent]] = {}
    for (entity, _, job_id), each in tables.spending.items():
        if job_id in job_ids:
            of_job = found.setdefault(job_id, {})
            of_job[entity] = of_job.get(entity, Spent()).plus(each)
    return found


def this_month(tables: Tables, entity: str) -> int:
    here = entity, month_of(tables.now())
    spent = sum(each.cost for key, each in tables.spending.items() if key[:2] == here)
    return spent + sum(each.cost for each in tables.reservations.values() if (each.entity, each.month) == here)


# Batches of texts.


def intend(tables: Tables, key: str, entity: str, embedder: str, worker_id: str) -> None:
    now = tables.now()
    for old, row in [*tables.embedding_batches.items()]:
        if row.finished and row.made_at < now - KEEP:
            del tables.embedding_batches[old]
    tables.embedding_batches[key] = BatchRow(entity, embedder, worker_id, now)


def finish(tables: Tables, key: str, worker_id: str) -> None:
    row = tables.embedding_batches.get(key)
    if row is not None and row.worker_id == worker_id:
        del tables.embedding_batches[key]
    elif row is not None:
        row.finished = True


def left(tables: Tables, entity: str, embedder: str, worker_id: str) -> list[SubmittedBatch]:
    found = [
        SubmittedBatch(key, row.batch_id, row.made_at, tables.now() - row.made_at, row.finished)
        for key, row in tables.embedding_batches.items()
        if (row.entity, row.embedder) == (entity, embedder)
        and (row.worker_id == worker_id or row.worker_id not in tables.workers)
    ]
    return sorted(found, key=lambda each: (each.made_at, each.key))

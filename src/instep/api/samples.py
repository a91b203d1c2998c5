"""Samples of the ledger and the bus, read periodically for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from instep.answers.jobs import WorkerView, worker_views
from instep.container import Container
from instep.ledger.totals import Figures
from instep.project import Project


@dataclass(frozen=True, slots=True)
class LedgerSample:
    figures: Figures
    workers: tuple[WorkerView, ...]


def sample_ledger(project: Project) -> LedgerSample:
    container = Container(project)
    with closing(container.ledger(read_only=True)) as ledger:
        return LedgerSample(ledger.figures(), tuple(worker_views(ledger, timing=container.timing)))


def sample_bus(project: Project) -> Mapping[str, int]:
    """Dead letters of each entity."""
    container = Container(project)
    with closing(container), closing(container.ledger(read_only=True)) as ledger:
        return Counter(each.entity for each in container.bus(ledger).dead_letters())

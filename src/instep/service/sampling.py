"""What is looked at again and again to be put into metrics: the ledger and the bus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from instep.ledger.figures import Figures
from instep.project import Project
from instep.service.compose import Workshop
from instep.service.jobs import WorkerView, worker_views


@dataclass(frozen=True, slots=True)
class LedgerSample:
    figures: Figures
    workers: tuple[WorkerView, ...]


def sample_ledger(project: Project) -> LedgerSample:
    workshop = Workshop(project)
    with closing(workshop.ledger(read_only=True)) as ledger:
        return LedgerSample(ledger.figures(), tuple(worker_views(ledger, timing=workshop.timing)))


def sample_bus(project: Project) -> Mapping[str, int]:
    """Dead letters of each entity."""
    workshop = Workshop(project)
    with closing(workshop), closing(workshop.ledger(read_only=True)) as ledger:
        return Counter(each.entity for each in workshop.bus(ledger).dead_letters())

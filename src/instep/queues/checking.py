"""Check a queue's declaration: the tables and columns exist, and keys are integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial

from instep.project import Project
from instep.queues.engines.queue_engine import PendingStore
from instep.queues.opening import open_queue


def queue_checks(project: Project) -> Mapping[str, Callable[[], str]]:
    """For the doctor: a question for each queue, which describes what it found or raises `UserError`."""
    return {f"queue {name}": partial(_look, partial(open_queue, project, name)) for name in project.queues}


def _look(opened: Callable[[], PendingStore]) -> str:
    with closing(opened()) as store:
        store.check()
        return f"its tables have what it needs{', and it is there' if store.exists() else ''}"

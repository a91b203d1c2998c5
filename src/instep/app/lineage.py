"""Lineage of a project's runs, sent while its workers work."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.container import Container
    from instep.jobs.lineage_outbox import Receiver
    from instep.planning.context import Context
    from instep.project import Project


def lineage_sent(container: Container, context: Context) -> AbstractContextManager[None]:
    """Sends lineage as long as it is entered, and what is left at its end, if the project says where to."""
    if container.project.lineage is None:
        return nullcontext()
    from importlib.metadata import version

    from instep.domain.open_lineage import Translator
    from instep.jobs.lineage_outbox import LineageOutbox
    from instep.project.datasets import ProjectDatasets

    project, ledger = container.project, context.ledger
    translator = Translator(
        project.name, version("instep"), ProjectDatasets(project, container.columns_seen), ledger.instances.get
    )
    outbox = LineageOutbox(ledger, _receiver(project), translator, context.clock, context.progress)
    return outbox.sending(context.background)


def _receiver(project: Project) -> Receiver:
    from instep.project.addresses import is_url
    from instep.telemetry.lineage_receivers import FileReceiver, HttpReceiver

    declared = project.lineage
    assert declared is not None
    if not is_url(declared.openlineage):
        return FileReceiver(Path(project.resolve(declared.openlineage)))
    key = declared.api_key
    return HttpReceiver(declared.openlineage, None if key is None else key.get_secret_value())

"""The doctor: is everything there that a run needs? Each answer says what to do about a no."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from instep.domain.amounts import amount
from instep.errors import InstepError, UserError
from instep.service.setup import EntitySetup


class Health(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str
    health: Health
    detail: str
    hint: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "health": str(self.health)}


def check(
    setups: Sequence[EntitySetup],
    *,
    open_ledger: Callable[[], str],
    java: Callable[[], str],
    spark: Callable[[], str],
    java_needed: bool,
) -> Iterator[Finding]:
    """Findings in the order a run would meet them. `open_ledger`, `java` and `spark` describe what
    they found or raise `UserError`. Without Java, small document waves still run inline: a warning.
    """
    yield _ask("Java", java, else_=Health.PROBLEM if java_needed else Health.WARNING)
    yield _ask("Spark", spark, else_=Health.PROBLEM if java_needed else Health.WARNING)
    yield _ask("ledger", open_ledger)
    checked: set[str] = set()
    for setup in setups:
        if setup.target_name not in checked:
            checked.add(setup.target_name)
            yield _ask(f"target {setup.target_name}", partial(_target, setup))
        yield _ask(f"source of {setup.ref.entity}", partial(_source, setup))
        yield _ask(f"embedder of {setup.ref.entity}", partial(_embedder, setup))


def _ask(subject: str, question: Callable[[], str], *, else_: Health = Health.PROBLEM) -> Finding:
    try:
        return Finding(subject, Health.OK, question())
    except UserError as error:
        what = f"{error.where}: {error.what}" if error.where else error.what
        return Finding(subject, else_, what, error.hint)
    except InstepError as error:
        return Finding(subject, else_, str(error))


def _target(setup: EntitySetup) -> str:
    setup.target.check()
    return "can be written"


def _source(setup: EntitySetup) -> str:
    found = setup.source.list()
    if not found.complete:
        raise UserError(
            f"{amount(len(found.documents), 'document')} found, and parts of it cannot be listed: {found.problems[0]}",
            hint="Nothing is deleted from the index as long as the listing is not complete.",
        )
    if not found.documents:
        raise UserError(f"no documents match in {setup.source_text}", hint="Look at `path`, `include` and `exclude`.")
    return f"{amount(len(found.documents), 'document')} in {setup.source_text}"


def _embedder(setup: EntitySetup) -> str:
    vectors = setup.embedder().embed(["Instep keeps indexes in step with their sources."])
    if vectors.shape != (1, setup.dimensions):
        raise UserError(f"gives vectors of {vectors.shape[-1]} dimensions; the project says {setup.dimensions}")
    return f"{setup.dimensions} dimensions"

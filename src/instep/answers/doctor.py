"""The doctor: is everything there that a run needs? Each answer says what to do about a no."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from instep.entities.ownership import foreign_alias
from instep.entities.setup import EntitySetup
from instep.error_transport import explained
from instep.errors import Away, InstepError, Transient, UserError


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
    #: It may be there again later.
    away: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "health": str(self.health)}


def check(
    setups: Sequence[EntitySetup],
    *,
    open_ledger: Callable[[], str],
    java: Callable[[], str],
    spark: Callable[[], str],
    java_needed: bool,
    queues: Mapping[str, Callable[[], str]],
) -> Iterator[Finding]:
    """Findings in the order a run would meet them. `open_ledger`, `java` and `spark` describe what
    they found or raise `UserError`. Without Java, small document waves still run inline: a warning. A project
    of queues alone needs neither.
    """
    if setups:
        yield _ask("Java", java, else_=Health.PROBLEM if java_needed else Health.WARNING)
        yield _ask("Spark", spark, else_=Health.PROBLEM if java_needed else Health.WARNING)
    yield _ask("ledger", open_ledger)
    checked: set[str] = set()
    asked: set[str] = set()
    owned: set[tuple[str, str]] = set()
    for setup in setups:
        if setup.target_name not in checked:
            checked.add(setup.target_name)
            yield _ask(f"target {setup.target_name}", partial(_target, setup))
        if (setup.target_name, setup.alias) not in owned:
            owned.add((setup.target_name, setup.alias))
            yield from _foreign(setup)
        if setup.alias not in asked:  # Its other partitions are alike.
            asked.add(setup.alias)
            for name, question in setup.checks().items():
                yield _ask(f"{name} of {setup.alias}", question)
    for name, question in queues.items():
        yield _ask(name, question)


def _ask(subject: str, question: Callable[[], str], *, else_: Health = Health.PROBLEM) -> Finding:
    try:
        return Finding(subject, Health.OK, question())
    except Exception as raised:
        error = explained(raised)
        if isinstance(error, UserError):
            what = f"{error.where}: {error.what}" if error.where else error.what
            return Finding(subject, else_, what, error.hint, isinstance(error, Away))
        if isinstance(error, InstepError):
            return Finding(subject, else_, str(error), away=isinstance(error, Transient))
        raise


def _foreign(setup: EntitySetup) -> Iterator[Finding]:
    """Only what is not as it should be. A target that is away has said so."""
    found: UserError | None = None
    try:
        found = foreign_alias(setup)
    except InstepError as error:
        if isinstance(error, UserError) and not isinstance(error, Away):
            found = error  # One that cannot be read may be anybody's.
    if found is not None:
        yield Finding(f"index {setup.alias}", Health.PROBLEM, found.what, found.hint)


def _target(setup: EntitySetup) -> str:
    setup.target.check()
    return "can be written"

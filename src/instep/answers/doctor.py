"""Checks that everything is there that a run needs; each problem comes with a hint."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial

from instep.answers.answer import Answer
from instep.domain.texts import hidden
from instep.entities.ownership import foreign_alias
from instep.entities.setup import EntitySetup
from instep.error_transport import explained
from instep.errors import Away, InstepError, Transient, UserError


class Health(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(Answer):
    """One finding of `instep check`. `away`: it is out of reach now, and may be there again later."""

    subject: str
    health: Health
    detail: str
    hint: str | None = None
    away: bool = False


def check(
    setups: Sequence[EntitySetup],
    *,
    open_ledger: Callable[[], str],
    state: Callable[[], str],
    java: Callable[[], str],
    spark: Callable[[], str],
    java_needed: bool,
    others: Mapping[str, Callable[[], str]],
) -> Iterator[Finding]:
    """Findings in the order a run would meet them. `open_ledger`, `state`, `java` and `spark` describe what
    they found or raise `UserError`. Without Java, small document waves still run inline: a warning. A project
    of queues alone needs neither.
    """
    if setups:
        yield _ask("Java", java, else_=Health.PROBLEM if java_needed else Health.WARNING)
        yield _ask("Spark", spark, else_=Health.PROBLEM if java_needed else Health.WARNING)
    ledger = _ask("ledger", open_ledger)
    yield ledger
    yield _ask("state", state)
    checked: set[str] = set()
    asked: set[str] = set()
    owned: set[tuple[str, str]] = set()
    for setup in setups:
        if setup.target_name not in checked:
            checked.add(setup.target_name)
            yield _ask(f"target {setup.target_name}", partial(_target, setup))
        # Of a ledger that cannot be opened nobody knows which indexes are its own.
        if ledger.health is Health.OK and (setup.target_name, setup.alias) not in owned:
            owned.add((setup.target_name, setup.alias))
            yield from _foreign(setup)
        if setup.alias not in asked:  # Its other partitions are alike.
            asked.add(setup.alias)
            found = [_ask(f"{name} of {setup.alias}", question) for name, question in setup.checks().items()]
            yield from found
            yield from _code(setup, {each.detail for each in found})
    for name, question in others.items():
        yield _ask(name, question)


def _ask(subject: str, question: Callable[[], str], *, else_: Health = Health.PROBLEM) -> Finding:
    try:
        return Finding(subject=subject, health=Health.OK, detail=question())
    except Exception as raised:
        error = explained(raised)
        if not isinstance(error, InstepError):
            raise
        return problem(subject, error, else_)


def problem(subject: str, error: InstepError, health: Health = Health.PROBLEM) -> Finding:
    """The finding that an error is."""
    if isinstance(error, UserError):
        what = f"{error.where}: {error.what}" if error.where else error.what
        hint, away = error.hint and hidden(error.hint), isinstance(error, Away)
        return Finding(subject=subject, health=health, detail=hidden(what), hint=hint, away=away)
    return Finding(subject=subject, health=health, detail=hidden(str(error)), away=isinstance(error, Transient))


def _foreign(setup: EntitySetup) -> Iterator[Finding]:
    """Findings about ownership, if it is not as it should be. A target that is away has said so."""
    found: UserError | None = None
    try:
        found = foreign_alias(setup)
    except InstepError as error:
        if isinstance(error, UserError) and not isinstance(error, Away):
            found = error  # The owner of an index that cannot be read is unknown.
    if found is not None:
        yield Finding(subject=f"index {setup.alias}", health=Health.PROBLEM, detail=found.what, hint=found.hint)


def _code(setup: EntitySetup, told: Collection[str]) -> Iterator[Finding]:
    """A finding about functions of the project that a run could not use, if there is one that was not told."""
    found = _ask(f"code of {setup.alias}", lambda: str(setup.fingerprint))
    if found.health is not Health.OK and found.detail not in told:
        yield found


def _target(setup: EntitySetup) -> str:
    setup.target.check()
    return "can be written"

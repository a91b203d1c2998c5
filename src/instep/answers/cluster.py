"""Executors of a Spark cluster as `instep check --cluster` finds them: what each has, and what it lacks."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from instep.answers.answer import OPTIONAL, Answer
from instep.answers.doctor import Finding, Health, problem
from instep.domain.texts import cleaned
from instep.entities.setup import EntitySetup
from instep.error_transport import explained, unpacked
from instep.errors import Away, InstepError, UserError
from instep.sources.tables.table_source import Sessions
from instep.targets.trial import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from instep.pipeline.engine.executors import Executor

#: What tasks import beside `host.LIBRARIES`: for documents, and the client of each type of target.
_OF_DOCUMENTS: Final = ("semantic-text-splitter", "selectolax", "pypdf", "pystemmer")
_CLIENTS: Final[Mapping[str, str]] = {
    "lance": "pylance",
    "clickhouse": "clickhouse-connect",
    "postgres": "psycopg",
    "qdrant": "qdrant-client",
    "milvus": "pymilvus",
    "opensearch": "opensearch-py",
}
_OK: Final = "ok"
_NOT_ASKED: Final = "not asked"


class ExecutorState(Answer):
    """State of one executor. `process` is that of its Python. Memory is its host's, in bytes. Sources are by entity,
    targets by name: `ok`, what is wrong, or `not asked`.
    """

    host: str
    process: int
    python: str
    versions: dict[str, str | None]
    memory: int | None
    free: int | None
    sources: dict[str, str]
    targets: dict[str, str]


class ClusterState(Answer):
    """`registered` is the number of executors that Spark has, where it says so."""

    spark: str
    registered: int | None = OPTIONAL
    executors: list[ExecutorState]
    findings: list[Finding]


def examine(setups: Sequence[EntitySetup], types: Mapping[str, str], spark: Sessions, shown: str) -> ClusterState:
    """Ask every executor. `types` are those of targets by their names, `shown` is the address of Spark. What is in the
    way is a finding, and nothing is left behind.
    """
    survey = _Survey(setups, types)
    executors: list[ExecutorState] = []
    registered = None
    try:
        session = spark()
        executors = survey.taken(session)
        registered = survey.registered(session, len(executors))
    except Exception as error:
        survey.add("Spark", error)
    finally:
        survey.end()
    return ClusterState(spark=shown, registered=registered, executors=executors, findings=survey.told())


class _Survey:
    def __init__(self, setups: Sequence[EntitySetup], types: Mapping[str, str]) -> None:
        self.findings: list[Finding] = []
        self._told: dict[Finding, list[str]] = {}
        # What works in this process alone is never given to tasks.
        self._setups = [each for each in setups if not each.in_process]
        self._types = types
        self._trials: dict[str, Trial] = {}
        self._made: list[tuple[str, Trial]] = []
        #: Sources that tasks read themselves, and those that Spark reads, by entity.
        self._readings: dict[str, Callable[[], None]] = {}
        self._tables: dict[str, EntitySetup] = {}

    def add(self, subject: str, raised: Exception, *, host: str | None = None) -> str:
        """Add an error to the findings: of this machine, or of an executor. Returns it as one sentence."""
        error = explained(raised)
        if not isinstance(error, InstepError):
            error = UserError(cleaned(f"{type(raised).__name__}: {raised}"), hint="Instep did not expect this error.")
        found = problem(subject, error)
        if host is not None:
            self._tell(found, host)
        elif not any(each.subject == subject for each in self.findings):
            self.findings.append(found)
        return error.what if isinstance(error, UserError) else str(error)

    def _tell(self, found: Finding, host: str) -> None:
        """Add what is so on a host; once, if it is the same on others."""
        if found not in self._told:
            self._told[found] = []
        if host not in self._told[found]:
            self._told[found].append(host)

    def told(self) -> list[Finding]:
        """All findings."""
        executors = [
            each.model_copy(update={"detail": f"on {', '.join(hosts)}: {each.detail}"})
            for each, hosts in self._told.items()
        ]
        return [*self.findings, *executors]

    def taken(self, session: SparkSession) -> list[ExecutorState]:
        """Ask: each executor stages a row at each target, and when all are committed, each counts them."""
        from instep.pipeline.engine.executor_probe import LIBRARIES, question
        from instep.pipeline.engine.executors import ask_all, readers

        self._begin()
        clients = sorted({_CLIENTS[self._types[each]] for each in self._trials if self._types[each] in _CLIENTS})
        documents = _OF_DOCUMENTS if self._readings else ()
        libraries = (*clients, *LIBRARIES, *documents)
        tries: dict[str, Callable[[], Any]] = {f"source {name}": each for name, each in self._readings.items()}
        tries |= {f"target {name}": each.stage for name, each in self._trials.items()}
        first = ask_all(session, question(libraries, tries))
        rows = self._commit([each["tries"] for each in first.values()])
        counting = {f"target {name}": self._trials[name].rows for name in rows}
        second = ask_all(session, question((), counting), list(first)) if rows else {}
        seen: dict[str, set[Executor]] = {}
        for name, setup in self._tables.items():
            try:
                frame = setup.frame(lambda: session)
                seen[name] = readers(session, frame) if frame is not None else set()
            except Exception as error:
                self.add(f"source of {name}", error)
        self._compare({each.host: said["versions"] for each, said in sorted(first.items())}, libraries)
        return [self._state(each, first[each], second.get(each), seen, rows) for each in sorted(first)]

    def registered(self, session: SparkSession, answered: int) -> int | None:
        """The number of executors, as far as Spark says. One that did not answer is a finding."""
        from instep.pipeline.engine import sparkapi

        number = sparkapi.executors(session)
        if number is not None and answered < number:
            detail = f"{number - answered} of {number} do not answer"
            hint = "Look into their logs: a Python that does not start, or is another one, is the usual reason."
            self.findings.append(Finding(subject="executors", health=Health.PROBLEM, detail=detail, hint=hint))
        return number

    def end(self) -> None:
        for name, trial in self._made:
            try:
                trial.end()
            except Exception as error:
                self.add(f"target {name}", error)

    def _begin(self) -> None:
        """Make what executors are to try. What does not work here is not asked of them."""
        for setup in {each.target_name: each for each in self._setups}.values():
            try:
                trial = setup.target_trial()
                self._made.append((setup.target_name, trial))
                self._trials[setup.target_name] = trial.begun()
            except Exception as error:
                self.add(f"target {setup.target_name}", error)
        for setup in {each.alias: each for each in self._setups}.values():
            try:
                reading = setup.reading()
                if reading is None:
                    self._tables[setup.alias] = setup
                else:
                    reading()
                    self._readings[setup.alias] = reading
            except Exception as error:
                self.add(f"source of {setup.alias}", error)

    def _commit(self, answers: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        """Commit what was staged; the number of rows that are to be found then, by target."""
        found = {}
        for name, trial in self._trials.items():
            told = [each[f"target {name}"] for each in answers if each]
            try:
                trial.commit([base64.b64decode(each["said"]) for each in told if "said" in each])
                found[name] = trial.rows()
            except Exception as error:
                self.add(f"target {name}", error)
        return found

    def _compare(self, hosts: Mapping[str, Mapping[str, str | None]], libraries: Iterable[str]) -> None:
        """Find libraries that are missing, or are other ones than here."""
        from instep.pipeline.engine.executor_probe import BRING_LIBRARIES, versions

        here = versions(libraries)
        for host, there in hosts.items():
            for library, version in here.items():
                found = there[library]
                if found is None:
                    detail, health, hint = f"{library} is not installed", Health.PROBLEM, BRING_LIBRARIES
                elif found != version:
                    detail, health = f"{library} is {found}, and {version} on this machine", Health.WARNING
                    hint = "Versions that differ may work together; these have not been tried."
                else:
                    continue
                self._tell(Finding(subject="libraries", health=health, detail=detail, hint=hint), host)

    def _state(
        self,
        executor: Executor,
        first: Mapping[str, Any],
        second: Mapping[str, Any] | None,
        seen: Mapping[str, set[Executor]],
        rows: Mapping[str, int],
    ) -> ExecutorState:
        sources = {name: self._word(f"source {name}", executor, first) for name in self._readings}
        sources |= {name: _OK if executor in seen.get(name, ()) else _NOT_ASKED for name in self._tables}
        targets = {name: self._word(f"target {name}", executor, first) for name in self._trials}
        for name in rows if second else ():
            if targets[name] == _OK:
                targets[name] = self._word(f"target {name}", executor, second or {}, rows[name])
        return ExecutorState(
            host=executor.host,
            process=executor.process,
            python=first["python"],
            versions=first["versions"],
            memory=first["memory"],
            free=first["free"],
            sources=sources,
            targets=targets,
        )

    def _word(self, subject: str, executor: Executor, said: Mapping[str, Any], expected: int | None = None) -> str:
        """The answer of an executor about a source or a target, in short; a finding if it is an error."""
        if subject not in said["tries"]:
            return _NOT_ASKED
        told = said["tries"][subject]
        if "error" in told:
            error = unpacked(told["error"], placed=False)
            if not isinstance(error, InstepError):
                error = UserError(str(error))
            elif expected is not None and isinstance(error, UserError) and not isinstance(error, Away):
                error = _other_place("nothing", expected)
            return self.add(subject, error, host=executor.host)
        if expected in (None, told["said"]):
            return _OK
        return self.add(subject, _other_place(str(told["said"]), expected or 0), host=executor.host)


def _other_place(found: str, rows: int) -> UserError:
    return UserError(
        f"finds {found} of {rows} rows that executors have written", hint="Is it the same place on all hosts?"
    )

"""An operator that does what `instep run` does, in the process of its task."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from instep import EntityResult, Instep, Partition, Runs


class InstepRunOperator(BaseOperator):
    """Bring indexes in step with their sources, and return what `instep run --json` says of each partition, by its
    reference, with `instance`, `rows` of the index and `complete_up_to`.

    :param project: the project's file or folder (templated)
    :param entities: entities (`Document`) or partitions of them (`MergeRequest@42/9970`); all by default (templated)
    :param generation: build or refresh this one; by default the promoted one (templated)
    :param allow_failures: the task succeeds though single documents or rows failed
    :param wait: seconds to wait for another run on the same partition

    The others are as of `instep run`. What may pass (a target that is away, a job that failed) is retried as the task
    says; what a person has to mend is not. A task that is killed stops as at Ctrl-C, and its next try resumes the job.
    """

    template_fields: Sequence[str] = ("project", "entities", "generation")
    ui_color = "#d8ecdf"

    def __init__(
        self,
        *,
        project: str,
        entities: str | Sequence[str] = (),
        generation: str | None = None,
        full_refresh: bool = False,
        retry_failures: bool = False,
        allow_deletes: bool = False,
        allow_empty: bool = False,
        allow_failures: bool = False,
        engine: str | None = None,
        wait: float = 600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.project = project
        self.entities = entities
        self.generation = generation
        self.full_refresh = full_refresh
        self.retry_failures = retry_failures
        self.allow_deletes = allow_deletes
        self.allow_empty = allow_empty
        self.allow_failures = allow_failures
        self.engine = engine
        self.wait = wait
        self._running = False

    def execute(self, context: Context) -> dict[str, dict[str, Any]]:
        from instep import Away, InstepError, UserError

        self._running = True
        try:
            return self._run()
        except KeyboardInterrupt:
            raise AirflowException("stopped; the next try resumes it") from None
        except InstepError as error:
            if isinstance(error, UserError) and not isinstance(error, Away):
                raise AirflowFailException(str(error)) from None
            raise AirflowException(str(error)) from None
        finally:
            self._running = False

    def on_kill(self) -> None:
        """Stop as at Ctrl-C: Airflow calls this in the task's own thread, in its handler of SIGTERM."""
        if self._running:
            raise KeyboardInterrupt

    def _run(self) -> dict[str, dict[str, Any]]:
        from instep import load
        from instep.cli.log_progress import LogProgress

        names = [self.entities] if isinstance(self.entities, str) else list(self.entities)
        project = load(self.project)
        done = project.run(
            names or None,
            full_refresh=self.full_refresh,
            retry_failures=self.retry_failures,
            allow_deletes=self.allow_deletes,
            allow_empty=self.allow_empty,
            generation=self.generation,
            engine=self.engine,
            wait=self.wait,
            progress=LogProgress(sys.stdout),
        )
        statuses = _statuses(project, done)
        bad = [each for each in done if each.failed or each.partial]
        text = "\n".join(_reason(project, each, statuses[str(each.ref)]) for each in bad)
        if any(each.failed or not (self.allow_failures and _only_failures(each)) for each in bad):
            raise (AirflowException if all(map(_may_pass, bad)) else AirflowFailException)(text)
        if text:
            self.log.warning(text)
        return {
            str(answer.ref): answer.model_dump(mode="json") | _served(statuses[str(answer.ref)])
            for answer in done.answers()
        }


def _statuses(project: Instep, done: Runs) -> dict[str, Partition]:
    found: dict[str, Partition] = {}
    for each in done:
        (found[str(each.ref)],) = project.status([str(each.ref)], generation=each.generation)
    return found


def _served(status: Partition) -> dict[str, Any]:
    return {"instance": status.instance, "rows": status.rows, "complete_up_to": status.watermark}


def _only_failures(each: EntityResult) -> bool:
    """Whether nothing else is wrong than that single documents or rows failed."""
    return not (each.failed or each.held_back or each.damaged or each.incomplete)


def _may_pass(each: EntityResult) -> bool:
    """Whether a retry may mend it. One that finds failed documents unchanged would do nothing, and succeed."""
    from instep import Away

    if each.failed:
        return each.problem is None or isinstance(each.problem, Away)
    return each.incomplete and not each.counts.failed


def _reason(project: Instep, each: EntityResult, status: Partition) -> str:
    notes = [str(each.problem)] if each.problem else [*each.notes, *status.notes]
    failed = project.failures([str(each.ref)], limit=3) if each.counts.failed else ()
    lines = [*dict.fromkeys(notes), *(f"{failure.uri}: {failure.reason}" for failure in failed)]
    return "\n".join([f"{each.ref} {each.state_name}: {lines[0] if lines else each.counts}", *lines[1:]])

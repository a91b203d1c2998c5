"""An operator that does what `instep run` does, in the process of its task."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from instep import Partition


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
        from instep import InstepError
        from instep.orchestrators import may_pass

        self._running = True
        try:
            return self._run()
        except KeyboardInterrupt:
            raise AirflowException("stopped; the next try resumes it") from None
        except InstepError as error:
            raise (AirflowException if may_pass(error) else AirflowFailException)(str(error)) from None
        finally:
            self._running = False

    def on_kill(self) -> None:
        """Stop as at Ctrl-C: Airflow calls this in the task's own thread, in its handler of SIGTERM."""
        if self._running:
            raise KeyboardInterrupt

    def _run(self) -> dict[str, dict[str, Any]]:
        from instep import load
        from instep.cli.log_progress import LogProgress
        from instep.orchestrators import outcomes

        done = outcomes(
            load(self.project),
            [self.entities] if isinstance(self.entities, str) else list(self.entities),
            full_refresh=self.full_refresh,
            retry_failures=self.retry_failures,
            allow_deletes=self.allow_deletes,
            allow_empty=self.allow_empty,
            generation=self.generation,
            engine=self.engine,
            wait=self.wait,
            progress=LogProgress(sys.stdout),
        )
        if bad := [each for each in done if not each.well(allow_failures=self.allow_failures)]:
            text = "\n".join(each.reason for each in bad)
            raise (AirflowException if all(each.may_pass for each in bad) else AirflowFailException)(text)
        for each in done:
            if not each.well(allow_failures=False):
                self.log.warning("%s", each.reason)
        return {each.ref: each.answer.model_dump(mode="json") | _served(each.status) for each in done}


def _served(status: Partition) -> dict[str, Any]:
    return {"instance": status.instance, "rows": status.rows, "complete_up_to": _text(status.watermark)}


def _text(watermark: int | None) -> str | None:
    return None if watermark is None else datetime.fromtimestamp(watermark / 1_000, UTC).isoformat()

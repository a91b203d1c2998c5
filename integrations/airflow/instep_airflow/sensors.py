"""A sensor that wants a partition, and waits for it without a worker's slot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from instep_airflow.triggers import ENDED, WantTrigger, event_of

if TYPE_CHECKING:
    from airflow.sdk import Context


class InstepPartitionSensor(BaseSensorOperator):
    """Want a partition, as `instep want` does, and wait in the triggerer until it is Live and complete up to a time. An
    `instep worker`, or the next `instep run`, builds what is missing. Returns the instances that are served.

    :param project: the project's file or folder, for workers and triggerers of Airflow alike (templated)
    :param partition: an entity (`Document`), or a partition (`MergeRequest@42/9970`) (templated)
    :param complete_up_to: all changes of the source until then have to be in; by default, that it is there (templated)
    :param generation: by default the promoted one (templated)

    `poke_interval`, `timeout` and `soft_fail` are as of any sensor. Another try of the same run of the DAG waits for
    the same want.
    """

    template_fields: Sequence[str] = ("project", "partition", "complete_up_to", "generation")
    ui_color = "#d8ecdf"

    def __init__(
        self,
        *,
        project: str,
        partition: str,
        complete_up_to: datetime | str | None = None,
        generation: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.project = project
        self.partition = partition
        self.complete_up_to = complete_up_to
        self.generation = generation

    def execute(self, context: Context) -> dict[str, Any]:
        from instep import Away, UserError, load

        ti, as_of = context["ti"], self._as_of()
        by = f"airflow: {ti.dag_id}.{ti.task_id} {ti.run_id} {ti.map_index}"
        try:
            project = load(self.project)
            open_one = next((each for each in project.wants(limit=1_000) if each.by == by), None)
            want = open_one or project.want([self.partition], as_of=as_of, generation=self.generation, by=by)
        except Away as error:
            raise AirflowException(str(error)) from None
        except UserError as error:
            raise AirflowFailException(str(error)) from None
        if want.state in ENDED:
            return self.resume(context, event_of(want))
        self.log.info("%s: %s; the want %s is waited for", ", ".join(want.refs), want.state, want.id)
        raise TaskDeferred(
            trigger=WantTrigger(self.project, want.id, self.poke_interval),
            method_name="resume",
            timeout=timedelta(seconds=self.timeout),
        )

    def _as_of(self) -> datetime | None:
        """The moment that is asked for; in UTC, as Airflow's own dates are, where it names no zone."""
        given = self.complete_up_to
        try:
            found = datetime.fromisoformat(given) if isinstance(given, str) else given
        except ValueError:
            raise AirflowFailException(f"complete_up_to is no time: {given!r}") from None
        return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on after the want has ended."""
        if event["state"] != "Successful":
            reason = event["reason"] or "see `instep wants --all`"
            raise AirflowException(f"{self.partition} {event['state']}: {reason}")
        return {name: event[name] for name in ("want", "instances", "complete_up_to")}

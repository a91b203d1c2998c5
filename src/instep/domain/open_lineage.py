"""Events of OpenLineage: those of the log about jobs, in the terms of that specification.

A run of OpenLineage is the work of one job on one instance: it starts when the job begins with the instance, and has
one end. Its id follows from both, so it is the same after a crash, and from every process.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from instep.domain import events as e
from instep.domain.counts import Counts
from instep.domain.instances import Instance
from instep.domain.refs import PartitionRef

PRODUCER: Final = "https://github.com/instep-dev/instep"
_SPEC: Final = "https://openlineage.io/spec"
_EVENT: Final = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs"


class Dataset(NamedTuple):
    """A dataset by OpenLineage's naming. `fields` are names and types, if these are known."""

    namespace: str
    name: str
    fields: Sequence[tuple[str, str]] = ()


class Datasets(Protocol):
    """A project's entities as datasets: the source, and where the rows are. Both are empty for one that is unknown."""

    def inputs(self, entity: str) -> Sequence[Dataset]: ...

    def outputs(self, entity: str, generation: str) -> Sequence[Dataset]: ...


class OpenRun(Struct, frozen=True):
    """A run that has started. `upstream` are entities and generations that it is made from beside its source."""

    ref: str
    generation: str
    job: str
    upstream: tuple[tuple[str, str], ...] = ()
    window: tuple[int, int] = (0, 0)
    revision: str = ""

    @property
    def entity(self) -> str:
        return PartitionRef.parse(self.ref).entity


#: Runs that have started, by their instance.
OpenRuns = dict[str, OpenRun]


class Translator(NamedTuple):
    """Translates events of the log. `instance` looks up an instance, None for one that was forgotten."""

    project: str
    version: str
    datasets: Datasets
    instance: Callable[[str], Instance | None]

    def told(self, recorded: e.Recorded, runs: OpenRuns) -> Iterator[dict[str, Any]]:
        """The events of OpenLineage that follow from one of the log. `runs` are brought up to date."""
        match event := recorded.event:
            case e.InstanceBuilding() | e.InstanceRefreshing():
                if (run := self._begun(event)) is not None:
                    runs[event.instance] = run
                    yield self._event("START", recorded.at, event.instance, run)
            case e.InstanceLive() | e.InstanceRefreshed():
                if (ended := runs.pop(event.instance, None)) is not None:
                    yield self._well(recorded.at, event.instance, ended, event.counts)
            case e.InstanceFailed() | e.RefreshFailed():
                if (ended := runs.pop(event.instance, None)) is not None:
                    yield self._event("FAIL", recorded.at, event.instance, ended, error=event.error)
            case e.PartitionDropped():
                left = {
                    instance: run
                    for instance, run in runs.items()
                    if run.ref == event.ref and run.generation in event.generations
                }
                for instance, run in left.items():
                    del runs[instance]
                    yield self._event("ABORT", recorded.at, instance, run)

    def _well(self, at: int, instance: str, run: OpenRun, counts: Counts) -> dict[str, Any]:
        """The instance is as before, and served: but where all that was to be done failed, so has the job."""
        if counts.all_failed:
            return self._event("FAIL", at, instance, run, counts=counts, error=f"all {counts.failed:,} failed")
        return self._event("COMPLETE", at, instance, run, counts=counts)

    def _begun(self, event: e.InstanceBuilding | e.InstanceRefreshing) -> OpenRun | None:
        instance = self.instance(event.instance)
        if instance is None:
            return None
        found = (self.instance(each) for each in event.inputs)
        return OpenRun(
            ref=instance.ref,
            generation=instance.generation,
            job=event.job,
            upstream=tuple((PartitionRef.parse(each.ref).entity, each.generation) for each in found if each),
            window=(event.floor, event.target),
            revision=instance.revision,
        )

    def _event(
        self, kind: str, at: int, instance: str, run: OpenRun, *, counts: Counts | None = None, error: str = ""
    ) -> dict[str, Any]:
        upstream = [each for entity, generation in run.upstream for each in self.datasets.outputs(entity, generation)]
        sources = self.datasets.inputs(run.entity)
        outputs = self.datasets.outputs(run.entity, run.generation)
        read, written = _statistics(counts, sources, outputs)
        return {
            "eventType": kind,
            "eventTime": _time(at),
            "producer": PRODUCER,
            "schemaURL": f"{_EVENT}/RunEvent",
            "run": {
                "runId": str(uuid.uuid5(uuid.UUID(instance), run.job)),
                "facets": self._facets(instance, run, counts, error),
            },
            "job": {
                "namespace": self.project,
                "name": f"{run.ref}@{run.generation}" if run.generation else run.ref,
                "facets": {
                    "jobType": _facet(
                        "2-0-4/JobTypeJobFacet", processingType="BATCH", integration="INSTEP", jobType="JOB"
                    )
                },
            },
            "inputs": [
                *(_dataset(each) | {"inputFacets": read} for each in sources),
                *map(_dataset, upstream),
            ],
            "outputs": [
                _dataset(each) | {"outputFacets": written if not place else {}} for place, each in enumerate(outputs)
            ],
        }

    def _facets(self, instance: str, run: OpenRun, counts: Counts | None, error: str) -> dict[str, Any]:
        floor, target = run.window
        own = {"instance": instance, "job": run.job, "window": [floor, target], "revision": run.revision}
        facets = {
            "processing_engine": _facet("1-1-1/ProcessingEngineRunFacet", name="Instep", version=self.version),
            "instep": {
                "_producer": PRODUCER,
                "_schemaURL": f"{_EVENT}/RunFacet",
                **own,
                **({"counts": counts.as_dict()} if counts else {}),
            },
        }
        if error:
            facets["errorMessage"] = _facet("1-0-1/ErrorMessageRunFacet", message=error, programmingLanguage="Python")
        return facets


def _facet(kind: str, **fields: Any) -> dict[str, Any]:
    """A facet of the specification, by its version and name."""
    name = kind.partition("/")[2]
    return {"_producer": PRODUCER, "_schemaURL": f"{_SPEC}/facets/{kind}.json#/$defs/{name}", **fields}


def _dataset(dataset: Dataset) -> dict[str, Any]:
    facets: Mapping[str, Any] = {}
    if dataset.fields:
        fields = [{"name": name, "type": kind} for name, kind in dataset.fields]
        facets = {"schema": _facet("1-2-0/SchemaDatasetFacet", fields=fields)}
    return {"namespace": dataset.namespace, "name": dataset.name, "facets": facets}


def _statistics(
    counts: Counts | None, sources: Sequence[Dataset], outputs: Sequence[Dataset]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facets of the source, if that is one dataset, and of the entity's own rows: beside edges, its units."""
    if counts is None:
        return {}, {}
    rows = counts.rows_written if len(outputs) == 1 else counts.written
    read = _facet("1-0-0/InputStatisticsInputDatasetFacet", rowCount=counts.read, size=counts.bytes_read)
    written = _facet("1-0-2/OutputStatisticsOutputDatasetFacet", rowCount=rows)
    return {"inputStatistics": read} if len(sources) == 1 else {}, {"outputStatistics": written}


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

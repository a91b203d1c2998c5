"""Wire a document entity: its declaration becomes source, chunker, embedder and program."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

from instep.document_state.columns import FEW
from instep.domain.document_columns import DeclaredColumn, Origin
from instep.domain.fingerprint import READERS, TARGET
from instep.domain.jobs import JobPart
from instep.domain.manifest import DeleteGuard
from instep.domain.planning import SliceSizing
from instep.domain.refs import PartitionRef
from instep.entities.documents.adapters import WayToPlan
from instep.entities.documents.setup import DocumentSetup
from instep.entities.documents.sources import document_source, limits_of, source_fingerprint, source_text
from instep.entities.partitions import upstream_refs
from instep.errors import Away, Transient, UserError
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.embed.embedder import Embedder, probe
from instep.pipeline.documents.fingerprint import fingerprint, load_transform, revision_of
from instep.pipeline.documents.pipeline import DocumentProgram
from instep.pipeline.documents.row_program import RowProgram
from instep.pipeline.engine.choice import EngineName
from instep.pipeline.engine.engine import WaveProgram
from instep.project import DocumentEntity, Embed, HashingEmbed, OpenAIEmbed, Project
from instep.project.columns import declared_columns
from instep.project.targets import in_process
from instep.sources.tables.row_documents import CountedTable, PortionedTable, RowDocuments
from instep.sources.tables.table_source import Sessions
from instep.targets.document_target import DocumentTarget

#: Seconds to wait for one text before a job is made, and after which the wait is reported.
_ANSWER_SECONDS: Final = 60.0
_LATE_SECONDS: Final = 5.0


def document_setup(
    project: Project,
    name: str,
    target: DocumentTarget,
    spark: Sessions,
    planning: Callable[[int], tuple[EngineName, str]] = lambda rows: ("inline", ""),
) -> DocumentSetup:
    """The entity's setup. Imports neither a heavy library nor its transform. `planning` chooses where so many rows are
    planned.
    """
    entity = project.entities[name]
    assert isinstance(entity, DocumentEntity), "asked for documents"
    source = document_source(project, name, spark)
    kind = RowProgram if isinstance(source, RowDocuments) else DocumentProgram
    columns = declared_columns(entity)
    chunker = Chunker(entity.chunk.size, entity.chunk.overlap)
    limits = limits_of(entity)
    embeddings = str(project.state_dir / "embeddings")
    readers = next((each for each in columns if each.name == entity.readers), None)

    def transform() -> Any:
        return load_transform(entity.transform) if entity.transform else None

    def fingerprints() -> Mapping[str, str]:
        made = fingerprint(chunker=chunker, embedder=embedder_of(entity.embed), transform=transform(), columns=columns)
        if readers is not None:
            made[READERS] = readers.name
        return {**made, **source_fingerprint(entity), TARGET: project.target_location(project.target_of(name))}

    def program(part: JobPart, base: int, into: DocumentTarget) -> WaveProgram:
        return kind(
            source=source,
            chunker=chunker,
            embedder=embedder_of(entity.embed),
            target=into,
            physical=part.physical,
            base=base,
            ref=str(part.ref),
            instance=part.instance,
            version=part.epoch,
            limits=limits,
            columns=columns,
            readers=readers,
            cache=embeddings,
            transform=transform(),
        )

    def scanned_rows() -> int:
        if isinstance(source, RowDocuments) and isinstance(source.table, PortionedTable):
            return source.table.count(source.columns)
        return 0

    def way_to_plan() -> WayToPlan:
        if not (isinstance(source, RowDocuments) and isinstance(source.table, CountedTable)):
            return WayToPlan()
        rows = source.table.count(source.columns)
        engine, why = planning(rows)
        if engine == "inline":
            return WayToPlan(told=f"compared in this process: {why}" if rows > FEW else None)
        from instep.pipeline.engine.corpus import SparkCorpus

        corpus = SparkCorpus(spark, project.state_dir / "planning", rows)
        if unseen := corpus.unseen(project.places_of_tasks):
            return WayToPlan(told=f"compared in this process: {unseen.what}")
        return WayToPlan(corpus, f"compared on Spark: {why}")

    return DocumentSetup(
        way_to_plan=way_to_plan,
        scanned_rows=cache(scanned_rows),
        ref=PartitionRef(name),
        source=source,
        source_text=source_text(entity, source),
        local_sources=project.local_sources(name),
        target=target,
        target_name=project.target_of(name),
        dimensions=entity.embed.dimensions,
        columns=[each.column for each in columns],
        readers=readers.column if readers else None,
        buckets=entity.buckets,
        sizing=SliceSizing(entity.chunk.size - entity.chunk.overlap, entity.slice_rows, entity.work_factor),
        priority=entity.priority,
        guard=DeleteGuard(entity.deletes.share, entity.deletes.floor, entity.deletes.window),
        needs_spark=entity.needs_spark,
        ttl=entity.ttl,
        revision=lambda: revision_of(project.root),
        fingerprints=cache(fingerprints),
        embedder=lambda: embedder_of(entity.embed),
        trial=partial(_try, entity.embed, embeddings) if isinstance(entity.embed, OpenAIEmbed) else None,
        programs=program,
        limits=limits,
        rehearsal=_rehearsal(entity.transform, spark, columns) if entity.transform else None,
        depends_on=upstream_refs(project, PartitionRef(name)),
        in_process=in_process(project.targets[project.target_of(name)]),
        needed=project.promotion_ratio,
    )


def _rehearsal(name: str, spark: Sessions, columns: Sequence[DeclaredColumn]) -> Callable[[], str]:
    @cache
    def rehearse() -> str:
        from instep.pipeline.documents.columns import ColumnReader
        from instep.pipeline.documents.rows import chunk_schema
        from instep.pipeline.engine.transforming import rehearsed

        transform = load_transform(name)
        try:
            added = rehearsed(spark(), transform, chunk_schema(ColumnReader(columns).fields))
        except Away:
            raise
        except UserError as error:
            raise UserError(error.what, where=name, hint=error.hint) from error
        for each in columns:
            if each.origin is Origin.TRANSFORM and each.name not in added:
                said = f"it adds {', '.join(added)}" if added else "it adds none"
                raise UserError(f"the transform adds no column {each.name}, which is declared: {said}", where=name)
        return f"{name} adds {', '.join(added)}" if added else f"{name} adds no columns"

    return rehearse


def _try(declared: OpenAIEmbed, cache: str, say: Callable[[str], None]) -> None:
    """Try the embedder with one text. Raises `UserError` for an embedder that cannot embed any text, and `Away` for one
    that does not answer.
    """
    from instep.pipeline.documents.embed.http import HttpEmbedder
    from instep.pipeline.documents.vectors import EmbeddingCache

    made = embedder_of(declared)
    assert isinstance(made, HttpEmbedder), "of that kind"
    # An embedder that has worked before is not tried here: all vectors may be cached.
    if EmbeddingCache(cache, made.fingerprint, made.dimensions).exists:
        return
    began = time.monotonic()
    late = threading.Timer(_LATE_SECONDS, say, ["the embedder has not answered yet"])
    late.start()
    try:
        probe(replace(made, attempts=1, timeout=_ANSWER_SECONDS))
    except Transient as error:
        # Another outage is retried when vectors are needed; this one has been waited for.
        if time.monotonic() - began >= _ANSWER_SECONDS:
            raise Away(str(error), hint="Is its model still being loaded? Run again when it answers.") from error
    finally:
        late.cancel()


def embedder_of(declared: Embed) -> Embedder:
    """Make the declared embedder."""
    if isinstance(declared, HashingEmbed):
        from instep.pipeline.documents.embed.hashing import HashingEmbedder

        return HashingEmbedder(declared.dimensions)
    if isinstance(declared, OpenAIEmbed):
        from instep.pipeline.documents.embed.http import HttpEmbedder

        return HttpEmbedder(
            url=declared.url,
            model=declared.model,
            dimensions=declared.dimensions,
            api_key=declared.api_key.get_secret_value() if declared.api_key else None,
            batch=declared.batch,
            requests_per_minute=declared.requests_per_minute,
        )
    from instep.pipeline.documents.embed.sentence_transformers import SentenceTransformersEmbedder

    return SentenceTransformersEmbedder(declared.model, declared.dimensions)

"""Wire a document entity: its declaration becomes source, chunker, embedder and program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from instep.document_state.columns import FEW
from instep.domain.document_columns import DeclaredColumn, Origin
from instep.domain.fingerprint import READERS, TARGET
from instep.domain.jobs import JobPart
from instep.domain.manifest import DeleteGuard
from instep.domain.planning import SliceSizing
from instep.domain.refs import PartitionRef
from instep.entities.documents.adapters import WayToPlan
from instep.entities.documents.corpora import corpus_of
from instep.entities.documents.embedders import demand_package, embedder_of, embedding_time_of, tariff_of, trial_of
from instep.entities.documents.rerankers import reranking_of
from instep.entities.documents.setup import DocumentSetup
from instep.entities.documents.sources import document_source, limits_of, queue_of, source_fingerprint, source_text
from instep.entities.partitions import upstream_refs
from instep.errors import Away, UserError
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.fingerprint import fingerprint
from instep.pipeline.documents.parse import FORMATS, FileParser, Parser
from instep.pipeline.documents.pipeline import DocumentProgram
from instep.pipeline.documents.tokens import Tokens
from instep.pipeline.engine.choice import EngineName
from instep.pipeline.engine.engine import WaveProgram
from instep.pipeline.loading import load_transform
from instep.pipeline.revision import revision_of
from instep.project import DocumentEntity, Project, Promotion, StaticEmbed
from instep.project.columns import declared_columns
from instep.project.documents import KreuzbergParse, PythonParse
from instep.project.embedders import ApiEmbed, FastembedEmbed, OpenAIEmbed, SentenceTransformersEmbed
from instep.project.load import declared_at
from instep.project.search import searched_of
from instep.project.targets import in_process
from instep.sources.document_source import DocumentSource
from instep.sources.tables.joined_documents import JoinedDocuments
from instep.sources.tables.row_documents import PortionedTable, RowDocuments
from instep.sources.tables.table_source import Sessions
from instep.sources.topic import TopicSource
from instep.targets.document_target import DocumentTarget, FusionWeights

if TYPE_CHECKING:
    from instep.entities.documents.quality import PromotionDemand
    from instep.pipeline.documents.syntax import Syntax


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
    kind = _program_of(source)
    columns = declared_columns(entity)
    searched = searched_of(entity)
    limits = limits_of(entity)
    embeddings = str(project.state_dir / "embeddings")
    readers = next((each for each in columns if each.name == entity.readers), None)

    def program(part: JobPart, base: int, into: DocumentTarget) -> WaveProgram:
        return kind(
            source=source,
            chunker=chunker_of(entity),
            parser=parser_of(entity, project.state_dir),
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
            searched=searched,
            cache=embeddings,
            transform=load_transform(entity.transform) if entity.transform else None,
        )

    return DocumentSetup(
        way_to_plan=partial(_way_to_plan, project, source, spark, planning),
        planning_folder=_planning_folder(project),
        scanned_rows=cache(partial(_scanned_rows, source)),
        ref=PartitionRef(name),
        source=source,
        queue=queue_of(entity),
        source_text=source_text(entity, source),
        local_sources=project.local_sources(name),
        target=target,
        target_name=project.target_of(name),
        dimensions=entity.embed.dimensions,
        columns=[each.column for each in columns],
        readers=readers.column if readers else None,
        searched=searched,
        buckets=entity.buckets,
        sizing=SliceSizing(_row_characters(entity), entity.slice_rows, entity.work_factor),
        priority=entity.priority,
        guard=DeleteGuard(entity.deletes.share, entity.deletes.floor, entity.deletes.window),
        needs_spark=entity.needs_spark,
        ttl=entity.ttl,
        revision=lambda: revision_of(project.root),
        fingerprints=cache(partial(_fingerprints, project, name, entity, source)),
        embedder=lambda: embedder_of(entity.embed),
        embedding_time=embedding_time_of(entity.embed),
        query_embedder=lambda: embedder_of(entity.embed, queries=True),
        search_mode=entity.search_mode,
        tells_weak=isinstance(entity.embed, StaticEmbed),
        weights=FusionWeights(*entity.search_weights),
        context=entity.chunk.context is not None,
        reranking=cache(lambda: reranking_of(entity.search.rerank)),
        demand=_demand(project, name, entity.promotion),
        trial=trial_of(entity.embed, embeddings),
        demand_package=partial(demand_package, entity.embed),
        programs=program,
        declared_tariff=tariff_of(entity.embed),
        limits=limits,
        requests_at_once=entity.embed.requests_at_once if isinstance(entity.embed, ApiEmbed) else None,
        rehearsal=_rehearsal(entity, spark, columns) if entity.transform else None,
        cutting=(lambda: _syntax().text) if entity.chunk.code == "syntax" else None,
        unread=() if entity.parse or isinstance(source, RowDocuments) else FORMATS,
        depends_on=upstream_refs(project, PartitionRef(name)),
        rebuild_with_upstream=entity.rebuild_with_upstream,
        in_process=in_process(project.targets[project.target_of(name)]) or getattr(target, "in_process", False),
        needed=project.promotion_ratio,
    )


def _fingerprints(project: Project, name: str, entity: DocumentEntity, source: DocumentSource) -> Mapping[str, str]:
    """Digests of all that makes the index what it is: another one of these is another index."""
    made = fingerprint(
        chunker=chunker_of(entity),
        embedder=embedder_of(entity.embed),
        transform=entity.transform,
        columns=declared_columns(entity),
        searched=searched_of(entity),
        parser=parser_of(entity).fingerprint,
    )
    made |= {READERS: entity.readers} if entity.readers else {}
    made |= source_fingerprint(entity, source)
    return {**made, TARGET: project.target_location(project.target_of(name))}


def _planning_folder(project: Project) -> Path:
    return project.state_dir / "planning"


def _way_to_plan(
    project: Project,
    source: DocumentSource,
    spark: Sessions,
    planning: Callable[[int], tuple[EngineName, str]],
    known: int,
) -> WayToPlan:
    """Choose where documents are listed and compared, of which the last listing had so many: here, or on Spark."""
    rows = source.counted() if isinstance(source, RowDocuments) else known
    if rows is None or corpus_of(source) is None:
        return WayToPlan()
    engine, why = planning(rows)
    if engine == "inline":
        return WayToPlan(told=f"compared in this process: {why}" if rows > FEW else None)
    from instep.pipeline.engine.corpus import SparkCorpus

    corpus = SparkCorpus(spark, _planning_folder(project), rows)
    if unseen := corpus.unseen(project.places_of_tasks):
        return WayToPlan(told=f"compared in this process: {unseen.what}")
    return WayToPlan(corpus, f"compared on Spark: {why}")


def _scanned_rows(source: DocumentSource) -> int:
    """The rows that are read to list the documents, if they are known without reading; else 0."""
    if not isinstance(source, RowDocuments):
        return 0
    if source.lake:
        return source.lake.size()
    return source.table.count(source.columns) if isinstance(source.table, PortionedTable) else 0


def _program_of(source: DocumentSource) -> type[DocumentProgram]:
    if not isinstance(source, TopicSource | RowDocuments):
        return DocumentProgram
    from instep.pipeline.documents.joined_program import JoinedProgram
    from instep.pipeline.documents.row_program import LookingProgram, RowProgram, TopicProgram

    if isinstance(source, TopicSource):
        return TopicProgram
    if isinstance(source, JoinedDocuments):
        return JoinedProgram
    return LookingProgram if source.frames is None else RowProgram


def chunker_of(entity: DocumentEntity) -> Chunker:
    """The declared chunker. Raises `UserError` if it needs what is not installed."""
    declared = entity.chunk
    context = declared.context is not None
    if declared.function is None:
        syntax = _syntax() if declared.code == "syntax" else None
        return Chunker(declared.size, declared.overlap, context, _tokens_of(entity), syntax)
    from instep.pipeline.documents.functions import FunctionChunker, OwnFunction

    own = OwnFunction.of(declared.function, "chunk.function")
    return FunctionChunker(declared.size, declared.overlap, context, own=own)


def _syntax() -> Syntax:
    from instep.pipeline.documents.syntax import Syntax

    return Syntax.installed()


def _row_characters(entity: DocumentEntity) -> int:
    """The characters of a document that make a row, about."""
    declared = entity.chunk
    return Chunker(declared.size, declared.overlap, tokens=_tokens_of(entity)).characters


def _tokens_of(entity: DocumentEntity) -> Tokens | None:
    if entity.chunk.unit == "characters":
        return None
    embed = entity.embed
    if isinstance(embed, StaticEmbed):
        return Tokens("static")
    assert isinstance(embed, OpenAIEmbed | SentenceTransformersEmbed | FastembedEmbed), "others were refused"
    return Tokens(embed.type, embed.model)


def parser_of(entity: DocumentEntity, state: Path | None = None) -> Parser:
    """The declared parser, or that of Instep; below `state` it may keep the texts that it has made."""
    from instep.pipeline.documents.formats import FormatParser
    from instep.pipeline.documents.parse_cache import ParseCache
    from instep.pipeline.documents.parser_process import IsolatedParser

    limits = entity.limits
    files = FileParser(entity.encoding)
    own = FormatParser.of(entity.encoding) if isinstance(entity.parse, KreuzbergParse) else files
    # Texts that not all may read stay in the index alone.
    kept = None if state is None or entity.readers else ParseCache(str(state / "parsed"))
    isolated = IsolatedParser(own, limits.parse_time, limits.parse_memory, kept)
    if not isinstance(entity.parse, PythonParse):
        return isolated
    from instep.pipeline.documents.functions import FunctionParser, OwnFunction

    return FunctionParser(OwnFunction.of(entity.parse.function, "parse.function"), isolated)


def _demand(project: Project, name: str, declared: Promotion | None) -> PromotionDemand | None:
    if declared is None:
        return None
    from instep.domain.relevance import Demand
    from instep.entities.documents.quality import PromotionDemand

    judgements = project.root / declared.judgements if declared.judgements else None
    demands = [Demand.parse(metric, text) for metric, text in declared.at_least.items()]

    def place(setting: str) -> str:
        return declared_at(project, "entities", name, "promotion", setting) or f"{name}: promotion.{setting}"

    return PromotionDemand(project.root / declared.queries, judgements, demands, project.state_dir / "quality", place)


def _rehearsal(entity: DocumentEntity, spark: Sessions, columns: Sequence[DeclaredColumn]) -> Callable[[], str]:
    name, context = entity.transform or "", entity.chunk.context is not None

    @cache
    def rehearse() -> str:
        from instep.pipeline.documents.columns import ColumnReader
        from instep.pipeline.documents.rows import chunk_schema
        from instep.pipeline.engine.transforming import rehearsed

        transform = load_transform(name)
        try:
            added = rehearsed(spark(), transform, chunk_schema(ColumnReader(columns).fields, context=context))
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

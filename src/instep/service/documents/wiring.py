"""Wiring of a document entity: what is declared becomes source, chunker, embedder, program."""

from __future__ import annotations

from instep.documents.chunk import Chunker
from instep.documents.code import load_transform
from instep.documents.embed.port import Embedder
from instep.documents.fingerprint import fingerprint
from instep.documents.limits import Limits
from instep.documents.pipeline import DocumentProgram
from instep.domain.jobs import JobPart
from instep.domain.manifest import DeleteGuard
from instep.domain.planning import SliceSizing
from instep.domain.refs import PartitionRef
from instep.engine.port import WaveProgram
from instep.project import DocumentEntity, Embed, HashingEmbed, OpenAIEmbed, Project
from instep.project import FilesSource as DeclaredFiles
from instep.project.targets import in_process
from instep.service.documents.setup import DocumentSetup
from instep.service.partitions import upstream_refs
from instep.service.revision import revision_of
from instep.sources.files import FilesSource
from instep.targets.port import DocumentTarget


def document_setup(project: Project, name: str, target: DocumentTarget) -> DocumentSetup:
    """The entity's setup. Imports no heavy library; raises `UserError` for a transform that is not there."""
    entity = project.entities[name]
    declared = project.resolved_source(name)
    assert isinstance(entity, DocumentEntity), "asked for documents"
    assert isinstance(declared, DeclaredFiles), "what documents come from"
    source = FilesSource(
        roots=declared.path, include=declared.include, exclude=declared.exclude, storage_options=declared.storage()
    )
    chunker = Chunker(entity.chunk.size, entity.chunk.overlap)
    transform = load_transform(entity.transform) if entity.transform else None
    limits = Limits(entity.limits.max_document_bytes, entity.limits.max_line_bytes)

    def program(part: JobPart, base: int) -> WaveProgram:
        return DocumentProgram(
            source=source,
            chunker=chunker,
            embedder=embedder_of(entity.embed),
            target=target,
            physical=part.physical,
            base=base,
            ref=str(part.ref),
            instance=part.instance,
            version=part.epoch,
            limits=limits,
            cache=str(project.state_dir / "embeddings"),
            transform=transform,
        )

    return DocumentSetup(
        ref=PartitionRef(name),
        source=source,
        source_text=", ".join(entity.source.path),
        target=target,
        target_name=project.target_of(name),
        dimensions=entity.embed.dimensions,
        buckets=entity.buckets,
        sizing=SliceSizing(entity.chunk.size - entity.chunk.overlap, entity.slice_rows, entity.work_factor),
        priority=entity.priority,
        guard=DeleteGuard(entity.deletes.share, entity.deletes.floor),
        needs_spark=transform is not None,
        ttl=entity.ttl,
        revision=lambda: revision_of(project.root),
        fingerprint=fingerprint(chunker=chunker, embedder=embedder_of(entity.embed), transform=transform),
        embedder=lambda: embedder_of(entity.embed),
        programs=program,
        depends_on=upstream_refs(project, PartitionRef(name)),
        in_process=in_process(project.targets[project.target_of(name)]),
    )


def embedder_of(declared: Embed) -> Embedder:
    """The embedder that is declared, as an object."""
    if isinstance(declared, HashingEmbed):
        from instep.documents.embed.hashing import HashingEmbedder

        return HashingEmbedder(declared.dimensions)
    if isinstance(declared, OpenAIEmbed):
        from instep.documents.embed.http import HttpEmbedder

        return HttpEmbedder(
            url=declared.url,
            model=declared.model,
            dimensions=declared.dimensions,
            api_key=declared.api_key.get_secret_value() if declared.api_key else None,
            batch=declared.batch,
            requests_per_minute=declared.requests_per_minute,
        )
    from instep.documents.embed.sentence_transformers import SentenceTransformersEmbedder

    return SentenceTransformersEmbedder(declared.model, declared.dimensions)

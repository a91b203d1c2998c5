"""Collections in this process (Qdrant Edge): the engine of Qdrant itself, each collection a folder of its own.

An alias is a symbolic link beside them, so that other programs find a collection by the same name as on a server.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from instep.domain.filters import Condition
from instep.domain.words import TextQuery
from instep.errors import InstepError, Transient, UserError
from instep.targets.document_target import SEARCHED
from instep.targets.qdrant.collections import MOST_VALUES, TEXT_INDEX, FieldIndex, Missing, Page, Points, Scored, Where
from instep.targets.qdrant.filtering import having
from instep.targets.qdrant.folder import Folder, folder

#: What makes a folder a collection.
_CONFIG = "edge_config.json"
#: A collection without vectors has to have a place for some all the same.
_NO_VECTORS = "none"

#: What is made beside its place, and what is moved there to be removed.
_NEW, _GONE, _ALIAS = ".new-", ".gone-", ".alias-"
_UNFINISHED = (_NEW, _GONE, _ALIAS)

#: Below this a search that looks at every vector is quick enough.
ANN_ROWS = 250_000
#: The engine writes through maps of its files: when the disk has no block for a page, the system ends the process
#: without a word (SIGBUS). So there has to be room before it does anything. As measured, opening a collection takes 5
#: to 20 MB, a request (`REQUEST_BYTES`) two or three times its size, and a new page of an index 32 MB.
_ROOM_TO_OPEN = 32 * 1024 * 1024
_ROOM_TO_WRITE = 128 * 1024 * 1024

#: Kilobytes of vectors from which Qdrant builds an index for them when told to optimize: never, and its own choice.
_NEVER = 2**40
_INDEXED_FROM = 20_000


@dataclass(frozen=True)
class EdgeCollections:
    """See `Collections`."""

    path: Path

    @property
    def shown(self) -> str:
        return str(self.path)

    @cached_property
    def _folder(self) -> Folder:
        return folder(self.path)

    # -- collections ---------------------------------------------------------------------------

    def check(self) -> None:
        _library()
        if (self.path / "meta.json").is_file():
            raise UserError(
                "this folder belongs to the local mode of qdrant-client, which has files of its own kind",
                where=self.shown,
                hint="Name another folder for Qdrant in this process.",
            )
        with self._folder.work():
            probe = self.path / f".check-{uuid.uuid4().hex}"
            try:
                probe.touch()
                probe.unlink()
            except OSError as error:
                raise UserError(f"the folder cannot be written: {error.strerror}", where=self.shown) from None
        self._demand_room(_ROOM_TO_WRITE)

    def names(self) -> list[str]:
        if not self.path.is_dir():
            return []
        return [
            each.name
            for each in self.path.iterdir()
            if not each.name.startswith(".") and not each.is_symlink() and (each / _CONFIG).is_file()
        ]

    def dimensions(self, name: str) -> int | None:
        try:
            config = (self.path / name / _CONFIG).read_bytes()
        except OSError:
            return None
        import json

        vectors = json.loads(config).get("vectors") or {}
        return int(vectors[""]["size"]) if "" in vectors else 0

    def indexed(self, name: str) -> frozenset[str]:
        with self.open(name) as shard:
            return frozenset(shard.info().payload_schema)

    def create(self, name: str, dimensions: int, indexes: Mapping[str, FieldIndex]) -> None:
        """Made beside its place and moved there: a crash leaves no half of it."""
        if self.dimensions(name) is not None:
            return
        edge = _library()
        with self._folder.alone():
            if self.dimensions(name) is not None:
                return
            self._clear()
            self._demand_room(_ROOM_TO_WRITE)
            made = self.path / f"{_NEW}{uuid.uuid4().hex}"
            with self._understood(name):
                made.mkdir()
                shard = edge.EdgeShard.create(str(made), _config(dimensions, _NEVER))
                for field, kind in indexes.items():
                    shard.update(edge.UpdateOperation.create_field_index(field, _schema(kind)))
                shard.flush()
                shard.close()
                made.rename(self.path / name)

    def drop(self, name: str) -> None:
        with self._folder.alone() as place:
            self._clear()
            if self.dimensions(name) is None:
                return
            shard = place.shards.pop(name, None)
            if shard is not None:
                shard.close()
            gone = self.path / f"{_GONE}{uuid.uuid4().hex}"
            (self.path / name).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def _clear(self) -> None:
        """Remove leftovers of processes that died while they made or dropped a collection, or moved an alias. The
        folder is this thread's alone: no other thread is in the middle of it.
        """
        for left in self.path.iterdir():
            if left.name.startswith(_UNFINISHED):
                if left.is_symlink():
                    left.unlink(missing_ok=True)
                else:
                    shutil.rmtree(left, ignore_errors=True)

    # -- points --------------------------------------------------------------------------------

    def upsert(self, name: str, points: Points, *, only_if: Where) -> None:
        edge = _library()
        # The engine reads numbers out of memory in three quarters of the time that they take as a list.
        given = points.vectors
        vectors: Sequence[Any] = [{}] * len(points) if given is None else [memoryview(each) for each in given]
        made = [edge.Point(*each) for each in zip(points.ids, vectors, points.payloads, strict=True)]
        with self.open(name) as shard:
            self._demand_room(_ROOM_TO_WRITE)
            shard.update(edge.UpdateOperation.upsert_points(made, condition=_filter(only_if)))

    def retell(self, name: str, payloads: Mapping[str, Mapping[str, Any]], *, only_if: Where) -> None:
        edge = _library()
        with self.open(name) as shard:
            self._demand_room(_ROOM_TO_WRITE)
            for id, payload in payloads.items():
                where = _filter(replace(only_if, ids=[id]))
                shard.update(edge.UpdateOperation.set_payload_by_filter(where, dict(payload)))

    def delete(self, name: str, where: Where) -> None:
        with self.open(name) as shard:
            self._demand_room(_ROOM_TO_WRITE)
            shard.update(_library().UpdateOperation.delete_points_by_filter(_filter(where)))

    def page(self, name: str, where: Where, *, fields: Sequence[str], limit: int, after: str | None = None) -> Page:
        wanted = _library().ScrollRequest(
            filter=_filter(where), limit=limit, offset=after, with_payload=list(fields), with_vector=False
        )
        with self.open(name) as shard:
            found, following = shard.scroll(wanted)
        return Page([each.payload for each in found], None if following is None else str(following))

    def last(self, name: str, where: Where, by: str) -> Mapping[str, Any] | None:
        edge = _library()
        order = edge.OrderBy(by, edge.Direction.Desc)
        with self.open(name) as shard:
            found, _ = shard.scroll(
                edge.ScrollRequest(filter=_filter(where), limit=1, order_by=order, with_payload=True)
            )
        payload: Mapping[str, Any] | None = found[0].payload if found else None
        return payload

    def get(self, name: str, ids: Sequence[str], *, fields: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        if not ids:
            return {}
        with self.open(name) as shard:
            found = shard.retrieve(list(ids), with_payload=list(fields), with_vector=False)
        return {str(each.id): each.payload for each in found}

    def vectors(self, name: str, ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
        with self.open(name) as shard:
            found = shard.retrieve(list(ids), with_payload=False, with_vector=True)
        return {str(each.id): each.vector for each in found}

    def count(self, name: str) -> int:
        with self.open(name) as shard:
            return int(shard.count(_library().CountRequest(exact=True)))

    # -- searches ------------------------------------------------------------------------------

    def values(self, name: str, field: str) -> list[str]:
        with self.open(name) as shard:
            found = shard.facet(_library().FacetRequest(field, limit=MOST_VALUES, exact=True))
        return [str(each.value) for each in found.hits]

    def counts(
        self, name: str, field: str, *, limit: int, words: TextQuery | None, chosen: Condition | None
    ) -> list[tuple[Any, int]]:
        among = having(words, chosen, _EdgeWords(_library()))
        with self.open(name) as shard:
            found = shard.facet(_library().FacetRequest(field, limit=limit, exact=True, filter=among))
        return [(each.value, each.count) for each in found.hits]

    def nearest(
        self, name: str, vector: Sequence[float], *, fields: Sequence[str], limit: int, chosen: Condition | None
    ) -> list[Scored]:
        among = having(None, chosen, _EdgeWords(_library()))
        return self._query(name, _library().Query.Nearest(list(vector)), fields, limit, among)

    def ranked(
        self, name: str, words: TextQuery, *, fields: Sequence[str], limit: int, chosen: Condition | None
    ) -> list[Scored]:
        among = having(TextQuery((), words.phrases), chosen, _EdgeWords(_library()))
        return self._query(name, _library().TextQuery(SEARCHED, words.text), fields, limit, among)

    def _query(self, name: str, query: Any, fields: Sequence[str], limit: int, among: Any) -> list[Scored]:
        wanted = _library().QueryRequest(
            limit=limit,
            query=query,
            with_payload=list(fields),
            with_vector=False,
            filter=among,
        )
        with self.open(name) as shard:
            return [Scored(each.score, each.payload) for each in shard.query(wanted)]

    # -- upkeep --------------------------------------------------------------------------------

    def sync(self, name: str) -> None:
        with self.open(name) as shard:
            shard.flush()

    def tidy(self, name: str) -> None:
        """Remove deleted rows where they are a large part. That needs room for both, or waits for it."""
        with self.open(name) as shard:
            if self._room() >= _ROOM_TO_WRITE + self._size(name):
                shard.optimize()

    def refinable(self, name: str) -> bool:
        with self.open(name) as shard:
            seen = shard.info()
        if seen.points_count < ANN_ROWS or seen.indexed_vectors_count:
            return False
        return self._room() >= _ROOM_TO_WRITE + self._size(name)

    def refine(self, name: str) -> None:
        """Build the index of vectors; from then on `tidy` keeps it up to date."""
        if not self.refinable(name):
            return
        edge = _library()
        with self._folder.alone() as place, self._understood(name):
            shard = place.shards.pop(name, None)
            if shard is not None:
                shard.close()
            config = _config(self.dimensions(name) or 0, _INDEXED_FROM)
            place.shards[name] = edge.EdgeShard.load(str(self.path / name), config)
        with self.open(name) as shard:
            shard.optimize()

    def pointed(self, alias: str) -> str | None:
        link = self.path / alias
        return link.readlink().name if link.is_symlink() else None

    def point(self, alias: str, name: str | None) -> None:
        link = self.path / alias
        with self._folder.work():
            if name is None:
                link.unlink(missing_ok=True)
                return
            made = self.path / f"{_ALIAS}{uuid.uuid4().hex}"
            made.symlink_to(name, target_is_directory=True)
            os.replace(made, link)  # noqa: PTH105 - Path.replace would do the same; this says that it is atomic

    # -- the engine ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Any]:
        """The collection, open. While it is, no other process can take it away."""
        if name not in self._folder.shards and self.dimensions(name) is None:
            raise Missing(f"there is no index {name!r}", where=self.shown, hint="Build it with: instep run")
        with self._folder.work() as place:
            with place.turn:
                shard = place.shards.get(name)
                if shard is None:
                    self._demand_room(_ROOM_TO_OPEN)
                    with self._understood(name):
                        shard = place.shards[name] = _library().EdgeShard.load(str(self.path / name))
            with self._understood(name):
                yield shard

    def _room(self) -> int:
        return shutil.disk_usage(self.path).free

    def _size(self, name: str) -> int:
        """The size on the disk, without holes."""
        return sum(each.stat().st_blocks * 512 for each in (self.path / name).rglob("*") if each.is_file())

    def _demand_room(self, needed: int) -> None:
        free = self._room()
        if free < needed:
            raise self._no_space(f"Qdrant needs {needed >> 20} MB, and {free >> 20} MB are free")

    def _no_space(self, why: str = "") -> UserError:
        return UserError(
            f"no space left for the index{f': {why}' if why else ''}",
            where=self.shown,
            hint="Free some space, then run again.",
        )

    @contextlib.contextmanager
    def _understood(self, name: str) -> Iterator[None]:
        """Edge has one class of errors for all: what they say tells them apart."""
        try:
            yield
        except InstepError:
            raise
        except Exception as error:
            said = str(error)
            if "No space left" in said:
                raise self._no_space() from None
            if "runtime error" in said:
                raise Transient(f"{self.shown}: {name}: {said}") from None
            raise UserError(f"Qdrant refused: {said}", where=f"{self.shown}: {name}") from None


def _library() -> Any:
    try:
        import qdrant_edge
    except ImportError:
        raise UserError("Qdrant in this process needs qdrant-edge-py", hint="pip install 'instep[qdrant]'") from None
    return qdrant_edge


def _config(dimensions: int, indexed_from: int) -> Any:
    edge = _library()
    optimizers = edge.EdgeOptimizersConfig(indexing_threshold=indexed_from)
    if not dimensions:
        return edge.EdgeConfig(sparse_vectors={_NO_VECTORS: edge.EdgeSparseVectorParams()}, optimizers=optimizers)
    vectors = edge.EdgeVectorParams(size=dimensions, distance=edge.Distance.Cosine)
    return edge.EdgeConfig(vectors=vectors, optimizers=optimizers)


def _schema(kind: FieldIndex) -> Any:
    edge = _library()
    if kind != "text":
        return getattr(edge.PayloadSchemaType, kind.capitalize())
    return edge.TextIndexParams(**{**TEXT_INDEX, "tokenizer": edge.TokenizerType.Whitespace})


def _filter(where: Where) -> Any:
    edge = _library()
    must: list[Any] = [edge.HasIdCondition(set(where.ids))] if where.ids else []
    for field, values in where.any_of.items():
        must.append(edge.FieldCondition(field, match=edge.MatchAny(list(values))))
    for field, value in where.above.items():
        must.append(edge.FieldCondition(field, range=edge.RangeFloat(gt=value)))
    for field, value in where.at_most.items():
        must.append(edge.FieldCondition(field, range=edge.RangeFloat(lte=value)))
    if where.missing:
        must.append(edge.IsEmptyCondition(where.missing))
    return edge.Filter(must=must)


@dataclass(frozen=True)
class _EdgeWords:
    """See `filtering.Words`."""

    edge: Any

    def filter(self, must: Sequence[Any] = (), should: Sequence[Any] = (), must_not: Sequence[Any] = ()) -> Any:
        return self.edge.Filter(must=list(must), should=list(should) or None, must_not=list(must_not))

    def one_of(self, field: str, values: Sequence[Any]) -> Any:
        return self.edge.FieldCondition(field, match=self.edge.MatchAny(list(values)))

    def range(self, field: str, **bounds: float) -> Any:
        return self.edge.FieldCondition(field, range=self.edge.RangeFloat(**bounds))

    def prefix(self, field: str, prefix: str) -> Any:
        return self.edge.FieldCondition(field, match=self.edge.MatchPrefix(prefix))

    def phrase(self, field: str, words: str) -> Any:
        return self.edge.FieldCondition(field, match=self.edge.MatchPhrase(words))

    def any_word(self, field: str, words: str) -> Any:
        return self.edge.FieldCondition(field, match=self.edge.MatchTextAny(words))

    def empty(self, field: str) -> Any:
        return self.edge.IsEmptyCondition(field)

"""Collections of a Qdrant server, through its own client."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from instep.errors import Away, Transient, UserError
from instep.targets.qdrant.collections import TEXT_INDEX, FieldIndex, Missing, Page, Points, Scored, Where
from instep.targets.qdrant.connection import Connection, Exists

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

#: Conditions on upserts came with this version, ranking of texts with the other.
_LEAST = (1, 16)
_RANKS = (1, 20)

#: A load goes without the index of vectors up to here; then it is built from this size on (kilobytes: Qdrant's own).
_NEVER = 0
_INDEXED_FROM = 20_000

#: Seconds that a new index is waited for before it is served without being complete: searches are right, and slower.
_PATIENCE = 900.0
_POLL = 0.5


@dataclass(frozen=True)
class ServerCollections:
    """See `Collections`."""

    connection: Connection

    @property
    def shown(self) -> str:
        return self.connection.shown

    # -- collections ---------------------------------------------------------------------------

    def check(self) -> None:
        try:
            version = self._version()
            self.connection.call(lambda client: client.get_collections())
        except Transient as error:
            raise Away(str(error), hint="Is the server up, the address right?") from None
        if version < _LEAST:
            raise UserError(
                f"Qdrant {_dotted(version)} has no conditional updates, which keep out writers of the past",
                where=self.shown,
                hint=f"Use Qdrant {_dotted(_LEAST)} or newer; {_dotted(_RANKS)} for searches by text.",
            )

    def _version(self) -> tuple[int, int]:
        said = str(self.connection.call(lambda client: client.info()).version)
        major, minor, *_ = (*said.split("."), "0")
        return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else _RANKS

    def names(self) -> list[str]:
        return [each.name for each in self.connection.call(lambda client: client.get_collections()).collections]

    def dimensions(self, name: str) -> int | None:
        try:
            vectors = self.connection.call(lambda client: client.get_collection(name)).config.params.vectors
        except Missing:
            return None
        return int(getattr(vectors, "size", 0) or 0)

    def create(self, name: str, dimensions: int, indexes: Mapping[str, FieldIndex]) -> None:
        from qdrant_client import models

        if not self.connection.call(lambda client: client.collection_exists(name)):
            vectors: Any = models.VectorParams(size=dimensions, distance=models.Distance.COSINE) if dimensions else {}
            loading = models.OptimizersConfigDiff(indexing_threshold=_NEVER)
            with contextlib.suppress(Exists):
                self.connection.call(partial(_create, name=name, vectors=vectors, optimizers=loading))
        ranks = "text" not in indexes.values() or self._version() >= _RANKS
        for field, kind in indexes.items():
            schema = _schema(kind, ranks=ranks)
            self.connection.call(partial(_create_index, name=name, field=field, schema=schema))

    def drop(self, name: str) -> None:
        with contextlib.suppress(Missing):
            self.connection.call(lambda client: client.delete_collection(name))

    # -- points --------------------------------------------------------------------------------

    def upsert(self, name: str, points: Points, *, only_if: Where) -> None:
        from qdrant_client import models

        vectors: Any = {} if points.vectors is None else points.vectors.tolist()
        batch = models.Batch(ids=list(points.ids), vectors=vectors, payloads=[dict(each) for each in points.payloads])
        condition = _filter(only_if)
        self.connection.call(
            lambda client: client.upsert(
                name, batch, update_filter=condition, wait=True, ordering=models.WriteOrdering.STRONG
            )
        )

    def delete(self, name: str, where: Where) -> None:
        from qdrant_client import models

        selector = models.FilterSelector(filter=_filter(where))
        self.connection.call(
            lambda client: client.delete(name, selector, wait=True, ordering=models.WriteOrdering.STRONG)
        )

    def page(self, name: str, where: Where, *, fields: Sequence[str], limit: int, after: str | None = None) -> Page:
        found, following = self.connection.call(
            lambda client: client.scroll(
                name,
                scroll_filter=_filter(where),
                limit=limit,
                offset=after,
                with_payload=list(fields),
                with_vectors=False,
            )
        )
        return Page([each.payload or {} for each in found], None if following is None else str(following))

    def last(self, name: str, where: Where, by: str) -> Mapping[str, Any] | None:
        from qdrant_client import models

        order = models.OrderBy(key=by, direction=models.Direction.DESC)
        found, _ = self.connection.call(
            lambda client: client.scroll(name, scroll_filter=_filter(where), order_by=order, limit=1, with_payload=True)
        )
        return (found[0].payload or {}) if found else None

    def get(self, name: str, ids: Sequence[str], *, fields: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        if not ids:
            return {}
        found = self.connection.call(lambda client: client.retrieve(name, list(ids), with_payload=list(fields)))
        return {str(each.id): each.payload or {} for each in found}

    def vectors(self, name: str, ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
        found = self.connection.call(
            lambda client: client.retrieve(name, list(ids), with_payload=False, with_vectors=True)
        )
        return {str(each.id): cast("Sequence[float]", each.vector) for each in found}

    def count(self, name: str) -> int:
        return int(self.connection.call(lambda client: client.count(name, exact=True)).count)

    # -- searches ------------------------------------------------------------------------------

    def nearest(self, name: str, vector: Sequence[float], *, fields: Sequence[str], limit: int) -> list[Scored]:
        found = self.connection.call(
            lambda client: client.query_points(name, query=list(vector), limit=limit, with_payload=list(fields))
        )
        return [Scored(each.score, each.payload or {}) for each in found.points]

    def ranked(self, name: str, field: str, text: str, *, fields: Sequence[str], limit: int) -> list[Scored]:
        from qdrant_client import models

        query = models.TextQuery(text=text)
        try:
            found = self.connection.call(
                lambda client: client.query_points(
                    name, query=query, using=field, limit=limit, with_payload=list(fields)
                )
            )
        except UserError:
            if self._version() >= _RANKS:
                raise
            raise UserError(
                f"this Qdrant cannot rank texts: {_dotted(_RANKS)} can",
                where=self.shown,
                hint="Search with --mode vector, or upgrade the server and build the index again.",
            ) from None
        return [Scored(each.score, each.payload or {}) for each in found.points]

    # -- upkeep --------------------------------------------------------------------------------

    def settle(self, name: str) -> None:
        """Nothing: every write was waited for."""

    def tidy(self, name: str) -> None:
        """Qdrant indexes and compacts by itself, once it may; the next search does not wait for it."""
        from qdrant_client import models

        optimizers = self.connection.call(lambda client: client.get_collection(name)).config.optimizer_config
        if optimizers.indexing_threshold != _NEVER:
            return
        usual = models.OptimizersConfigDiff(indexing_threshold=_INDEXED_FROM)
        self.connection.call(lambda client: client.update_collection(name, optimizers_config=usual))
        deadline = time.monotonic() + _PATIENCE
        while self.connection.call(lambda client: client.get_collection(name)).status in _AT_WORK:
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL)

    def refine(self, name: str, begin: Callable[[], None]) -> None:
        """Nothing: `tidy` has waited for the index."""

    def pointed(self, alias: str) -> str | None:
        found = self.connection.call(lambda client: client.get_aliases()).aliases
        return next((each.collection_name for each in found if each.alias_name == alias), None)

    def point(self, alias: str, name: str | None) -> None:
        from qdrant_client import models

        changes: list[Any] = [models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias))]
        if name is not None:
            create = models.CreateAlias(collection_name=name, alias_name=alias)
            changes.append(models.CreateAliasOperation(create_alias=create))
        self.connection.call(lambda client: client.update_collection_aliases(changes))


#: What a collection says of itself while its index is being built, or waits for that.
_AT_WORK = ("yellow", "grey")


def _create(client: QdrantClient, *, name: str, vectors: Any, optimizers: Any) -> None:
    client.create_collection(name, vectors_config=vectors, optimizers_config=optimizers)


def _create_index(client: QdrantClient, *, name: str, field: str, schema: Any) -> None:
    client.create_payload_index(name, field, field_schema=schema, wait=True)


def _schema(kind: FieldIndex, *, ranks: bool) -> Any:
    from qdrant_client import models

    if kind == "keyword":
        return models.PayloadSchemaType.KEYWORD
    if kind == "integer":
        return models.PayloadSchemaType.INTEGER
    settings: dict[str, Any] = {name: value for name, value in TEXT_INDEX.items() if ranks or name != "scoring"}
    return models.TextIndexParams(type=models.TextIndexType.TEXT, **settings)


def _filter(where: Where) -> Any:
    from qdrant_client import models

    must: list[Any] = [models.HasIdCondition(has_id=list(where.ids))] if where.ids else []
    for field, values in where.any_of.items():
        must.append(models.FieldCondition(key=field, match=models.MatchAny(any=list(values))))
    for field, value in where.above.items():
        must.append(models.FieldCondition(key=field, range=models.Range(gt=value)))
    for field, value in where.at_most.items():
        must.append(models.FieldCondition(key=field, range=models.Range(lte=value)))
    if where.missing:
        must.append(models.IsEmptyCondition(is_empty=models.PayloadField(key=where.missing)))
    return models.Filter(must=must)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"

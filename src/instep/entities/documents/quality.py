"""The quality of the build of an entity: its rankings of judged queries, and the demand of its promotion."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from instep.domain.fingerprint import WORDS, digest
from instep.domain.judgements import JudgementError, judged_queries
from instep.domain.relevance import DEPTH, Demand, Found, JudgedQuery, Measured, gains, shortfall
from instep.domain.words import SEARCHED_BY_DEFAULT, language_of, text_query
from instep.errors import InstepError, UserError
from instep.pipeline.documents.embed.embedder import query_vectors

if TYPE_CHECKING:
    from instep.pipeline.documents.embed.embedder import Embedder
    from instep.pipeline.documents.rerank.reranker import Reranking
    from instep.targets.document_target import DocumentTarget, FusionWeights, SearchMode

#: Chunks that are looked at, for so many documents.
_CHUNKS: Final = 300
#: The part of a fingerprint that says how text becomes vectors.
EMBEDDER: Final = "embedder"
#: So many measurements are kept, the latest.
_KEPT: Final = 100


class Searched(Protocol):
    """A setup of documents, as far as a search needs it."""

    @property
    def target(self) -> DocumentTarget: ...

    @property
    def alias(self) -> str: ...

    @property
    def search_mode(self) -> SearchMode: ...

    @property
    def weights(self) -> FusionWeights: ...

    @property
    def query_embedder(self) -> Callable[[], Embedder]: ...

    @property
    def reranking(self) -> Callable[[], Reranking | None]: ...

    @property
    def fingerprint(self) -> Mapping[str, str]: ...


class Build(Protocol):
    """A part of a job, or a checkpoint: the index of an instance, and what it is made of."""

    @property
    def instance(self) -> str: ...

    @property
    def physical(self) -> str: ...

    @property
    def fingerprint(self) -> Mapping[str, str]: ...


def read_queries(queries: Path, judgements: Path | None = None) -> list[JudgedQuery]:
    """The judged queries of a file, with judgements in one of their own or in it. Raises `UserError`."""
    try:
        with queries.open(encoding="utf-8-sig") as lines:
            if judgements is None:
                return judged_queries(lines)
            with judgements.open(encoding="utf-8-sig") as judged:
                return judged_queries(lines, judged)
    except JudgementError as error:
        raise UserError(str(error), where=str(queries), hint="See docs/quality.md for the form.") from None
    except UnicodeDecodeError:
        raise UserError("is not text in UTF-8", where=str(queries)) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(error.filename or queries)) from None


def measure(
    setup: Searched,
    physical: str,
    made_of: Mapping[str, str],
    queries: Sequence[JudgedQuery],
    mode: SearchMode | None = None,
) -> Measured:
    """Search an index, by the words that it was `made_of`, for all queries, also for what only some may read, as a
    search of the entity would: in its mode unless another is asked for, with its weights and its reranker.
    """
    way = mode or setup.search_mode
    vectors = None if way == "text" else query_vectors(setup.query_embedder(), [each.text for each in queries])
    reranking = setup.reranking()
    language = language_of(made_of.get(WORDS, SEARCHED_BY_DEFAULT.fingerprint))
    found = {}
    for number, query in enumerate(queries):
        hits = setup.target.search(
            physical,
            entity=setup.alias,
            text=text_query(query.text, language),
            vector=None if vectors is None else vectors[number].tolist(),
            mode=way,
            limit=_CHUNKS,
            weights=setup.weights,
        )
        if reranking is not None:
            hits = reranking.ordered(query.text, hits)
        best = {hit.document_id: Found(hit.document_id, hit.source_uri) for hit in hits}
        found[query.id] = gains(list(best.values())[:DEPTH], query)
    return Measured(queries, found)


@dataclass(frozen=True)
class PromotionDemand:
    """The demand on a build before it is served. `kept` is the folder for what builds reached when they were: a
    later one with another embedder cannot ask them any more. `place` tells where a setting of it is declared.
    """

    queries: Path
    judgements: Path | None
    demands: Sequence[Demand]
    kept: Path
    place: Callable[[str], str]

    def read(self) -> list[JudgedQuery]:
        """The judged queries. Raises `UserError`."""
        for setting, path in (("queries", self.queries), ("judgements", self.judgements)):
            if path is not None and not path.exists():
                hint = f"Write it as docs/quality.md says, or name another one in `promotion.{setting}`."
                raise UserError(f"there is no file {path}", where=self.place(setting), hint=hint)
        return read_queries(self.queries, self.judgements)

    def problem(self, setup: Searched, new: Build, served: Build | None) -> str | None:
        """The reason why a build must not be served, or None: then what it reaches is kept."""
        try:
            queries = self.read()
        except UserError as error:
            return f"its search quality cannot be measured: {error}; not served"
        built = self._measured(setup, new, queries)
        before = None if served is None else self._measured(setup, served, queries)
        if not built.known and not (before and before.known):
            return (
                f"none of the documents that are judged in {self.queries} is found: they are named by id, URI or path; "
                "not served"
            )
        short = [told for each in self.demands if (told := shortfall(each, built, before))]
        if short:
            return f"its search quality is too low: {'; '.join(short)}; the served index stays (see `instep evaluate`)"
        self._keep(setup, new.instance, built)
        return None

    def remember(self, setup: Searched, served: Build) -> None:
        """Keep what a build that is served reaches, if that is not known yet, or was measured before another reranker,
        mode or weight was declared: once another embedder is, nobody can ask it any more. What cannot be measured now
        is measured another time.
        """
        with suppress(InstepError):
            queries = self.read()
            declared = served.fingerprint.get(EMBEDDER) == setup.fingerprint[EMBEDDER]
            if declared and self._kept(served.instance, queries).get("way") != _way(setup):
                self._keep(setup, served.instance, measure(setup, served.physical, served.fingerprint, queries))

    def _measured(self, setup: Searched, build: Build, queries: Sequence[JudgedQuery]) -> Measured:
        """Measure the build as it is searched now. With another embedder than the declared one: as measured when it was
        promoted, or else by text alone.
        """
        if build.fingerprint.get(EMBEDDER) == setup.fingerprint[EMBEDDER]:
            return measure(setup, build.physical, build.fingerprint, queries)
        kept = self._recalled(build.instance, queries)
        return kept or measure(setup, build.physical, build.fingerprint, queries, "text")

    def _recalled(self, instance: str, queries: Sequence[JudgedQuery]) -> Measured | None:
        try:
            told = self._kept(instance, queries)["gains"]
            return Measured(queries, {each.id: [float(gain) for gain in told[each.id]] for each in queries})
        except (ValueError, TypeError, KeyError):
            return None

    def _kept(self, instance: str, queries: Sequence[JudgedQuery]) -> dict[str, Any]:
        """The gains of a build, and the way in which it was searched; nothing, if they are not known."""
        try:
            told = json.loads(self._file(instance, queries).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return told if isinstance(told, dict) else {}

    def _keep(self, setup: Searched, instance: str, built: Measured) -> None:
        with suppress(OSError):  # It is only measured again, by its text then.
            file = self._file(instance, built.queries)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"way": _way(setup), "gains": dict(built.gains)}), encoding="utf-8")
            kept = sorted(file.parent.glob("*.json"), key=lambda each: each.stat().st_mtime)
            for old in kept[:-_KEPT]:
                old.unlink()

    def _file(self, instance: str, queries: Sequence[JudgedQuery]) -> Path:
        asked = [[each.id, each.text, sorted(each.relevant.items())] for each in queries]
        return self.kept / f"{instance}-{digest(asked)}.json"


def _way(setup: Searched) -> str:
    """The way in which the entity is searched, as far as its declaration says: no build depends on that."""
    return digest([setup.search_mode, *setup.weights, repr(setup.reranking())])

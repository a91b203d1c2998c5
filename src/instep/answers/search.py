"""Search what is served: full text, vector, or both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from typing import Any, Final, NamedTuple, get_args

from instep.answers import shown
from instep.answers.answer import Answer
from instep.answers.hit_order import MAX_LIMIT, chosen_by, of_documents, reranked, weak_hits
from instep.answers.looks import Look, Looks
from instep.answers.readers import Build, readable_in
from instep.answers.snippet import snippet
from instep.domain.column_values import Value
from instep.domain.document_columns import BUILT_IN, MODIFIED, DocumentColumn, DocumentColumnType
from instep.domain.filter_language import beginning, parsed
from instep.domain.filters import Condition, FilterError, FilterValue, columns_of, every
from instep.domain.fingerprint import WORDS, column_part, column_type
from instep.domain.refs import generation_text
from instep.domain.storable import storable
from instep.domain.whole_numbers import demand_whole
from instep.domain.words import PLAIN, TextQuery, language_of, text_query
from instep.entities.documents.inspection import has_modified
from instep.entities.documents.setup import DocumentSetup
from instep.entities.generations import generation_of, moved_text
from instep.entities.ownership import vanished
from instep.errors import Away, UserError
from instep.ledger.ledger import Ledger
from instep.targets import document_target
from instep.targets.document_target import ScoreKind, SearchMode
from instep.targets.facets import COUNTED, MAX_VALUES, Counted
from instep.targets.ranking import alternating
from instep.telemetry.progress import Progress

MODES: Final[tuple[SearchMode, ...]] = get_args(SearchMode)
#: Facets of one search, at most.
MAX_FACETS = 5
#: Of several entities so many values of each are added up, the most frequent ones.
_VALUES_OF_EACH = 1_000
#: What of a target's hit is in the answer.
_FOUND = tuple(each.name for each in fields(document_target.Hit))
#: The part of a fingerprint that says how text becomes vectors.
_EMBEDDER = "embedder"
#: The part that says which columns every index has, and more.
_SCHEMA = "schema"


class Hit(Answer):
    """One hit of a search. `score` is of the kind `score_kind`; compare scores within one answer only. `mode` is the
    mode in which its entity was searched. `weak`: its text means something else than the query, as far as the embedder
    `static` knows; null with other embedders. `marks` are the ranges of `snippet` that match. `columns` are the values
    of the declared columns that the index has, without the column of readers. `instance` is the build in which the hit
    was found, and `watermark` the time up to which that is complete (ms); both are null if the ledger does not know
    them, or not yet.
    """

    entity: str
    mode: SearchMode
    weak: bool | None
    score: float
    score_kind: ScoreKind
    document_id: str
    chunk_id: str
    chunk_index: int
    source_uri: str
    title: str | None
    text: str
    snippet: str
    marks: tuple[tuple[int, int], ...]
    columns: Mapping[str, Value]
    instance: str | None
    watermark: int | None

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        yield from shown.in_line((name, getattr(self, name)) for name in ("score", "title", "source_uri", "snippet"))


class _Searched(NamedTuple):
    """An entity as it was searched."""

    mode: SearchMode
    text: TextQuery
    language: str
    build: Build | None


class FacetCount(Answer):
    """The number of chunks that have this value in a column, or among its elements. A date is a text in ISO 8601."""

    value: FilterValue
    count: int


def search(
    setups: Sequence[DocumentSetup],
    looks: Looks,
    query: str,
    *,
    mode: SearchMode | None = None,
    limit: int,
    principals: Sequence[str] = (),
    where: str | None = None,
    offset: int = 0,
    group: bool = False,
    generation: str | None = None,
    progress: Progress,
) -> list[Hit]:
    """Best first, over all given entities, in the generation asked for or the promoted one; several entities are fused
    by rank. Those that are not built yet are left out; if none is built, a `UserError` says so.

    `where`: a filter (`domain/filter_language.py`), which every entity has the columns for. `group`: of each document
    only its best chunk.

    `mode`: by default the one of each entity.

    Documents with readers are found by those of `principals`, and by everybody if they are public.
    """
    query = _typed(query)
    demand_whole(limit=limit, offset=offset)
    if not 1 <= limit <= MAX_LIMIT:
        raise UserError(f"a limit of {limit} is out of range", hint=f"Allowed: 1 to {MAX_LIMIT}.")
    if not 0 <= offset <= MAX_LIMIT - limit:
        raise UserError(
            f"an offset of {offset} is out of range",
            hint=f"Allowed: 0 to {MAX_LIMIT} together with the limit, which is {limit}.",
        )
    answers: list[list[document_target.Hit]] = []
    entities: dict[str, _Searched] = {}
    for setup, served, chosen in _served(setups, looks, where, principals, generation):
        language = _language(setup, served)
        possible = _possible(setup, served, mode or setup.search_mode, progress, words=language is not None)
        text = text_query(query, language or PLAIN)
        entities[setup.alias] = _Searched(possible, text, language or PLAIN, served.build)
        vector = None if possible == "text" else _embed(setup, query)
        asked = partial(
            setup.target.search,
            served.physical,
            entity=setup.alias,
            text=text,
            vector=vector,
            mode=possible,
            weights=setup.weights,
            columns=_shown_columns(setup, served),
        )
        ask = partial(chosen_by, asked, [] if chosen is None else [chosen])
        reranking = setup.reranking()
        many = limit + offset if reranking is None else max(limit + offset, reranking.top)
        with _there(setup, served.physical, looks.ledger):
            found = of_documents(ask, many) if group else ask(many)
        answers.append(found if reranking is None else reranked(setup, reranking, query, found, progress))
    hits = alternating(answers)[offset : offset + limit]
    weak = weak_hits({setup.alias: setup.context for setup in setups if setup.tells_weak}, query, hits)
    return [_answer(hit, entities[hit.entity], weak.get((hit.entity, hit.chunk_id))) for hit in hits]


def facets(
    setups: Sequence[DocumentSetup],
    looks: Looks,
    query: str,
    columns: Sequence[str],
    *,
    mode: SearchMode | None = None,
    limit: int,
    principals: Sequence[str] = (),
    where: str | None = None,
    generation: str | None = None,
) -> dict[str, list[FacetCount]]:
    """The most frequent values of columns among the chunks that `search` looks through: by text and hybrid those that
    have one of the words, by vector all that the filter leaves. Entities that have no such column count nothing. It is
    not told who may read documents.
    """
    query, wanted = _typed(query), tuple(dict.fromkeys(columns))
    demand_whole(limit=limit)
    if len(wanted) > MAX_FACETS or not 1 <= limit <= MAX_VALUES:
        hint = f"Allowed: {MAX_FACETS} columns, with 1 to {MAX_VALUES} values each."
        raise UserError(f"{len(wanted)} facets with {limit} values each are not counted", hint=hint)
    _demand_facets(setups, wanted)
    # By type too: entities may call values of different types alike, and True is 1.
    found: dict[str, Counter[tuple[type, FilterValue]]] = {name: Counter() for name in wanted}
    for setup, served, chosen in _served(setups, looks, where, principals, generation):
        if own := [each for each in setup.columns if each.name in found]:
            _demand_in_index(setup, served, [each.name for each in own])
            text = None
            if (mode or setup.search_mode) != "vector":
                language = _language(setup, served)
                if language is None:
                    raise _without_words(setup)
                text = text_query(query, language)
                if not text.words:
                    continue
            most = limit if len(setups) == 1 else _VALUES_OF_EACH
            with _there(setup, served.physical, looks.ledger):
                counted = setup.target.facets(served.physical, Counted(own, text, chosen, most))
            for name, counts in counted.items():
                found[name].update({(type(value), value): count for value, count in counts})
    return {
        name: [
            FacetCount(value=value, count=count)
            for (_, value), count in sorted(counts.items(), key=lambda each: (-each[1], str(each[0][1])))[:limit]
        ]
        for name, counts in found.items()
    }


def values(
    setups: Sequence[DocumentSetup],
    looks: Looks,
    column: str,
    *,
    begin: str = "",
    principals: Sequence[str] = (),
    limit: int,
) -> list[FacetCount]:
    """The most frequent values of a column that begin like this, among what these principals may find. Of lists and
    numbers only the values that are the most frequent of all are looked through.
    """
    kinds = {each.type for setup in setups for each in setup.columns if each.name == column}
    own = [setup for setup in setups if any(each.name == column for each in setup.columns)]
    asked = partial(facets, own or setups, looks, "any", [column], mode="vector", principals=principals)
    if begin and kinds == {DocumentColumnType.STRING}:
        return asked(limit=limit, where=beginning(column, begin))[column]
    found = asked(limit=MAX_VALUES if begin else limit)[column]
    return [each for each in found if str(each.value).startswith(begin)][:limit]


def _demand_facets(setups: Sequence[DocumentSetup], names: Sequence[str]) -> None:
    secret = {setup.readers.name for setup in setups if setup.readers is not None}
    for name in sorted(secret.intersection(names)):
        raise UserError(f"values of {name!r} are not shown: it says who may read documents")
    declared = {each.name: each for setup in setups for each in setup.columns if each.name not in secret}
    possible = sorted(name for name, each in declared.items() if each.type in COUNTED)
    for name in names:
        if name not in possible:
            kind = f"column {name!r} is a {declared[name].type}" if name in declared else f"there is no column {name!r}"
            hint = f"Allowed: {', '.join(possible)}." if possible else "Declare columns: docs/documents.md."
            raise UserError(f"no facet by {name!r}: {kind}", hint=hint)


def _typed(query: str) -> str:
    query = storable(query)  # No embedder and no target takes anything else.
    if not query.strip():
        raise UserError("the query is empty", hint='Try: instep search "how do I configure it"')
    return query


def _served(
    setups: Sequence[DocumentSetup],
    looks: Looks,
    where: str | None,
    principals: Sequence[str],
    generation: str | None,
) -> Iterator[tuple[DocumentSetup, Look, Condition | None]]:
    """Entities that are built, each with its index and what holds for all that may be found there: the filter, and that
    one of the principals may read it. Raises `UserError` if none is built.
    """
    conditions = [None if where is None else _condition(setup, where, alone=len(setups) == 1) for setup in setups]
    built = False
    for setup, condition in zip(setups, conditions, strict=True):
        served = looks.at(setup, generation)
        if served is None:
            continue
        built = True
        if condition is not None:
            _demand_in_index(setup, served, [each.name for each in columns_of(condition)])
        required = [readable_in(setup, served.made_of, principals), condition]
        chosen = [each for each in required if each is not None]
        yield setup, served, every(chosen) if chosen else None
    if not built:
        raise _nothing_built(setups, looks.ledger, generation)


@contextmanager
def _there(setup: DocumentSetup, physical: str, ledger: Ledger) -> Iterator[None]:
    """If the index is gone, say what builds it again: its target knows only that something is missing."""
    try:
        yield
    except UserError as error:
        if isinstance(error, Away) or setup.target.exists(physical):
            raise
        raise vanished(setup, physical, ledger) from error


def _condition(setup: DocumentSetup, where: str, *, alone: bool) -> Condition:
    """The filter. Who may read a document is none: it would tell one who finds it who else does."""
    columns = (*BUILT_IN, *setup.columns)
    try:
        return parsed(where, [each for each in columns if each != setup.readers])
    except FilterError as error:
        if setup.readers is not None and _is_filter(where, columns):
            hint = "Search as a person or a group: they find what they may read."
            what, told = f"{setup.readers.name!r} says who may read documents, so a filter cannot name it", hint
        elif alone:
            raise
        else:
            what, told = f"{setup.ref.label}: {error.what}", f"{error.hint or ''} Name one entity.".strip()
        raise FilterError(what, position=error.position, hint=told) from None


def _is_filter(where: str, columns: Sequence[DocumentColumn]) -> bool:
    try:
        parsed(where, columns)
    except FilterError:
        return False
    return True


def _demand_in_index(setup: DocumentSetup, served: Look, names: Iterable[str]) -> None:
    """Raises `UserError` for a column that the index was built without, or that was of another type then. Where its
    values came from is no matter: they are what is served, until the next run.
    """
    now, then = setup.fingerprint, _made_of(setup, served)
    for name in sorted(names):
        part = column_part(name)
        lacks = part in now and column_type(then.get(part)) != column_type(now[part])
        if name == MODIFIED.name and then.get(_SCHEMA) != now.get(_SCHEMA):
            lacks = not has_modified(setup, served.physical)
        if lacks:
            how = " as it is declared now" if part in then else ""
            what = f"{setup.ref.label}: column {name!r} is not in the served index yet{how}"
            raise UserError(what, hint="Run: instep run")


def _made_of(setup: DocumentSetup, served: Look) -> Mapping[str, str]:
    """The fingerprint of what is served. If it was replaced since it was looked up, that of what is declared."""
    if served.made_of is None:
        return setup.fingerprint if served.known else {}
    return served.made_of


def _shown_columns(setup: DocumentSetup, served: Look) -> list[DocumentColumn]:
    """The declared columns that the index has, in the type they are declared in, and that anybody may see."""
    then = _made_of(setup, served)

    def has(name: str) -> bool:
        part = column_part(name)
        return column_type(then.get(part)) == column_type(setup.fingerprint.get(part))

    return [each for each in setup.columns if each != setup.readers and has(each.name)]


def _language(setup: DocumentSetup, served: Look) -> str | None:
    """The language of an index's words, which is another than the declared one until it is built again. None for an
    index of an earlier version, which has no words. One of which nothing is known is taken for what is declared.
    """
    made = setup.fingerprint if served.made_of is None else served.made_of
    return language_of(made[WORDS]) if WORDS in made else None


def _without_words(setup: DocumentSetup) -> UserError:
    what = f"{setup.ref.label}: the served index was built by an earlier version, and cannot be searched by words"
    return UserError(what, hint="Run: instep run")


def _answer(hit: document_target.Hit, searched: _Searched, weak: bool | None) -> Hit:
    found = snippet(hit.text, searched.text, searched.language)
    return Hit(
        **{name: getattr(hit, name) for name in _FOUND},
        mode=searched.mode,
        weak=weak,
        snippet=found.text,
        marks=found.marks,
        instance=searched.build.instance if searched.build else None,
        watermark=searched.build.watermark if searched.build else None,
    )


def checked_mode(mode: str | None) -> SearchMode | None:
    """The mode itself; None leaves it to each entity. Raises `UserError` for a text that is no mode."""
    if mode is not None and mode not in MODES:
        raise UserError(f"unknown search mode {mode!r}", hint=f"Allowed: {', '.join(MODES)}.")
    return mode


def in_one_target(setups: Sequence[DocumentSetup], target: str | None) -> list[DocumentSetup]:
    """The setups in this target; by default in the first target of each entity. All of them hold the same."""
    if target is None:
        return list({setup.alias: setup for setup in reversed(setups)}.values())[::-1]
    found = [setup for setup in setups if setup.target_name == target]
    if not found:
        names = ", ".join(dict.fromkeys(setup.target_name for setup in setups))
        raise UserError(f"no documents of these entities are in a target {target!r}", hint=f"They are in: {names}.")
    return found


def _nothing_built(setups: Sequence[DocumentSetup], ledger: Ledger, generation: str | None) -> UserError:
    of_it = f" of generation {generation!r}" if generation else ""
    working = [str(each.ref) for each in setups if ledger.jobs.unfinished(each.ref, generation or "")]
    if working:
        return UserError(f"the first build{of_it} of {', '.join(working)} has not ended", hint="Run: instep run")
    option = f" --generation {generation}" if generation else ""
    moved = next(filter(None, (moved_text(each, ledger, generation) for each in setups)), None)
    for each in setups if moved is None else ():
        checkpoint = ledger.checkpoints.get(each.ref, generation_of(ledger, each.ref, generation))
        if checkpoint is not None and not each.target.exists(checkpoint.physical):
            return vanished(each, checkpoint.physical, ledger)
    return UserError(moved or f"nothing is indexed yet{of_it}", hint=f"Run: instep run{option}")


def _possible(setup: DocumentSetup, served: Look, mode: SearchMode, progress: Progress, *, words: bool) -> SearchMode:
    """Vectors of one embedder say nothing about those of another: what was built with another one than the project
    declares is searched by its text. What has no `words` is searched by its vectors.
    """
    if not words:
        if mode == "text":
            raise _without_words(setup)
        progress.say(setup.ref.label, "was built by an earlier version: searched by its vectors only, until instep run")
        return "vector"
    checkpoint = served.checkpoint
    if mode == "text" or checkpoint is None or checkpoint.fingerprint.get(_EMBEDDER) == setup.fingerprint[_EMBEDDER]:
        return mode
    built = f"{generation_text(setup.ref, checkpoint.generation)} was built with another embedder"
    if mode == "vector":
        raise UserError(f"{built} than the project declares now", hint="Search it with --mode text, or rebuild it.")
    progress.say(setup.ref.label, f"{built}: searched by its text only")
    return "text"


def _embed(setup: DocumentSetup, query: str) -> list[float]:
    from instep.pipeline.documents.embed.embedder import query_vectors

    vector: list[float] = query_vectors(setup.query_embedder(), [query])[0].tolist()
    return vector

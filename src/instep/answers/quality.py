"""The quality of builds: nDCG, recall and MRR of judged queries, for each mode of search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from instep.answers.answer import Answer
from instep.answers.search import MODES
from instep.domain.relevance import METRICS, JudgedQuery, Measured
from instep.entities.documents.quality import EMBEDDER, measure
from instep.entities.documents.setup import DocumentSetup
from instep.entities.generations import generation_of, physical_of
from instep.errors import UserError
from instep.ledger.ledger import Ledger
from instep.targets.document_target import SearchMode


class QueryQuality(Answer):
    """The quality of the answer to one query."""

    id: str
    query: str
    scores: dict[str, float]


class Quality(Answer):
    """The quality of a build in one mode. `default`: searches that name no mode use this one. `scores` are means over
    all `queries`, by metric.
    """

    entity: str
    generation: str
    served: bool
    mode: SearchMode
    default: bool
    scores: dict[str, float]
    queries: list[QueryQuality]


def evaluate(
    setups: Sequence[DocumentSetup],
    ledger: Ledger,
    queries: Sequence[JudgedQuery],
    *,
    modes: Sequence[SearchMode] = MODES,
    generation: str | None = None,
) -> list[Quality]:
    """Ask each entity all queries in each mode: what is served of it, and another generation beside it. Raises
    `UserError` where nothing is built, or no judged document is found by any of them.
    """
    found = [each for setup in setups for each in _of_entity(setup, ledger, queries, modes, generation)]
    if not found:
        raise UserError("nothing is built that could be searched", hint="Run: instep run")
    if not any(score for each in found for score in each.scores.values()):
        raise UserError(
            "no query finds a document that is judged",
            hint="Judgements name documents by id, URI, or the end of their path, with or without its extension.",
        )
    return found


def _of_entity(
    setup: DocumentSetup,
    ledger: Ledger,
    queries: Sequence[JudgedQuery],
    modes: Sequence[SearchMode],
    generation: str | None,
) -> Iterator[Quality]:
    served = generation_of(ledger, setup.ref, None)
    for asked in dict.fromkeys((None, generation)):
        physical = physical_of(setup, ledger, asked)
        name = served if asked is None else asked
        if physical is None or (asked is not None and asked == served):
            continue
        built = ledger.checkpoints.get(setup.ref, name)
        made_of = setup.fingerprint if built is None else built.fingerprint
        alike = made_of.get(EMBEDDER) == setup.fingerprint[EMBEDDER]
        for mode in modes:
            if mode == "text" or alike:
                yield _answer(setup, name, asked is None, mode, measure(setup, physical, made_of, queries, mode))


def _answer(setup: DocumentSetup, generation: str, served: bool, mode: SearchMode, found: Measured) -> Quality:
    scores = {metric: found.scores(metric) for metric in METRICS}
    return Quality(
        entity=setup.ref.label,
        generation=generation,
        served=served,
        mode=mode,
        default=mode == setup.search_mode,
        scores={metric: round(found.mean(metric), 4) for metric in METRICS},
        queries=[
            QueryQuality(
                id=each.id, query=each.text, scores={metric: round(scores[metric][each.id], 4) for metric in METRICS}
            )
            for each in found.queries
        ],
    )

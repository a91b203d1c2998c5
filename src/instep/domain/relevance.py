"""Relevance: judged queries, how well a ranking answers one, and whether a build finds well enough to be served.

nDCG takes a judgement as its gain and log2(1 + rank) as its discount, as trec_eval does. Documents that nobody judged
are not relevant. Everything is of documents: of several chunks the best one counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Final
from urllib.parse import unquote, urlsplit

#: As many documents are looked at of each ranking.
DEPTH: Final = 100
#: What is shown of a build.
METRICS: Final = ("ndcg@10", "recall@10", "recall@100", "mrr")

_METRIC: Final = re.compile(r"(?P<name>ndcg|recall)@(?P<depth>[1-9]\d?|100)|mrr")
_AMOUNT: Final = re.compile(r"(?P<number>\d*\.?\d+(e-?\d+)?)(?P<percent>\s*%)?(?P<share>\s+of\s+served)?")


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """`relevant`: names of documents (id, URI, path or the end of one, with or without its extension) and how relevant
    each is, 1 or more.
    """

    id: str
    text: str
    relevant: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Found:
    """A document of a ranking."""

    document_id: str
    uri: str

    def names(self) -> Iterator[str]:
        """Names that it may have in a judgement, the surest first."""
        yield self.document_id
        yield self.uri
        parts = unquote(urlsplit(self.uri).path).strip("/").split("/")
        for start in range(len(parts)):
            path = "/".join(parts[start:])
            yield path
            if "." in parts[-1][1:]:
                yield path.rpartition(".")[0]


def gains(ranking: Sequence[Found], query: JudgedQuery) -> list[float]:
    """The relevance of each document of a ranking. What a judgement names counts once, for the first that has the
    name.
    """
    left = dict(query.relevant)
    found = []
    for each in ranking:
        name = next((name for name in each.names() if name in left), None)
        found.append(0.0 if name is None else left.pop(name))
    return found


def score(metric: str, found: Sequence[float], query: JudgedQuery) -> float:
    """The value of a metric (`ndcg@10`, `recall@100`, `mrr`), from 0 to 1, of a ranking with these gains."""
    match = _METRIC.fullmatch(metric)
    if match is None:
        raise ValueError(f"no metric {metric!r}")
    if match["name"] is None:
        return next((1.0 / rank for rank, gain in enumerate(found, 1) if gain > 0), 0.0)
    depth = int(match["depth"])
    if match["name"] == "recall":
        return sum(gain > 0 for gain in found[:depth]) / len(query.relevant)
    best = sorted(query.relevant.values(), reverse=True)
    return _discounted(found[:depth]) / _discounted(best[:depth])


def _discounted(found: Iterable[float]) -> float:
    return sum(gain / math.log2(1 + rank) for rank, gain in enumerate(found, 1))


def is_metric(name: str) -> bool:
    return _METRIC.fullmatch(name) is not None


@dataclass(frozen=True)
class Measured:
    """The answers of a build to judged queries: the gains of each ranking, by the query's id."""

    queries: Sequence[JudgedQuery]
    gains: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @cached_property
    def known(self) -> bool:
        """Whether any judged document was found at all."""
        return any(gain > 0 for each in self.gains.values() for gain in each)

    def scores(self, metric: str) -> dict[str, float]:
        """By the query's id."""
        return {each.id: score(metric, self.gains[each.id], each) for each in self.queries}

    def mean(self, metric: str) -> float:
        return fmean(self.scores(metric).values())


@dataclass(frozen=True, slots=True)
class Demand:
    """The least that a metric has to reach: a value, or a share of what the served build reaches."""

    metric: str
    value: float
    of_served: bool

    @classmethod
    def parse(cls, metric: str, text: str | float) -> Demand:
        """`0.3` or `30%`, or a share: `0.98 of served`, `98% of served`. Raises `ValueError`."""
        amount = _AMOUNT.fullmatch(str(text).strip())
        if amount is None:
            raise ValueError("must be a number such as 0.3 or 30%, or a share such as 0.98 of served or 98% of served")
        value = float(amount["number"]) / (100 if amount["percent"] else 1)
        if not 0 < value <= 1:
            raise ValueError("must be above 0, and at most 1 or 100%")
        return cls(metric, value, amount["share"] is not None)


#: So many queries are named that are answered worse.
_NAMED: Final = 5


def shortfall(demand: Demand, built: Measured, served: Measured | None) -> str | None:
    """The reason why a build does not find well enough, with the queries that it answers worse; None if it does. A
    share of what is served is no demand where nothing is.
    """
    if demand.of_served and served is None:
        return None
    reached = built.mean(demand.metric)
    before = served.mean(demand.metric) if served else 0.0
    least = demand.value * before if demand.of_served else demand.value
    if reached >= least - 1e-9:
        return None
    share = f", {demand.value:g} of the {before:.3f} that is served" if demand.of_served else ""
    text = f"{demand.metric} is {reached:.3f}, and at least {least:.3f} is required{share}"
    worst = _worse(demand.metric, built, served)
    return f"{text}; answered worse: {worst}" if worst else text


def _worse(metric: str, built: Measured, served: Measured | None) -> str:
    now = built.scores(metric)
    before = served.scores(metric) if served else dict.fromkeys(now, 1.0)
    lost = sorted(((now[id] - before[id], id) for id in now if now[id] < before[id]), key=lambda each: each[0])
    named = ", ".join(f"{id} ({before[id]:.2f} → {now[id]:.2f})" for _, id in lost[:_NAMED])
    return f"{named} and {len(lost) - _NAMED:,} more" if len(lost) > _NAMED else named

"""Search what is served: full text, vector, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from instep.errors import UserError
from instep.ledger.port import Ledger
from instep.service.setup import EntitySetup
from instep.service.snippets import Snippet, snippet
from instep.targets.port import Hit, SearchMode

MAX_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Found:
    """A hit, with the part of its text that answers the query."""

    hit: Hit
    snippet: Snippet

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self.hit), "snippet": self.snippet.text, "marks": [list(mark) for mark in self.snippet.marks]}


def search(setups: Sequence[EntitySetup], ledger: Ledger, query: str, *, mode: SearchMode, limit: int) -> list[Found]:
    """Best first, over all given entities. Entities that are not built yet are left out; if none is
    built, a `UserError` says so.
    """
    if not query.strip():
        raise UserError("the query is empty", hint='Try: instep search "how do I configure it"')
    if not 1 <= limit <= MAX_LIMIT:
        raise UserError(f"--limit {limit} is out of range", hint=f"Allowed: 1 to {MAX_LIMIT}.")
    hits: list[Hit] = []
    built = False
    for setup in setups:
        physical = setup.target.served(setup.alias)
        if physical is None:
            continue
        built = True
        vector = None if mode == "text" else _embed(setup, query)
        hits += setup.target.search(
            physical, entity=setup.ref.entity, text=query, vector=vector, mode=mode, limit=limit
        )
    if not built:
        working = [str(setup.ref) for setup in setups if ledger.unfinished_job(setup.ref)]
        what = f"the first build of {', '.join(working)} has not ended" if working else "nothing is indexed yet"
        raise UserError(what, hint="Run: instep run")
    hits.sort(key=lambda hit: -hit.score)
    return [Found(hit, snippet(hit.text, query)) for hit in hits[:limit]]


def _embed(setup: EntitySetup, query: str) -> list[float]:
    vector: list[float] = setup.embedder().embed([query])[0].tolist()
    return vector

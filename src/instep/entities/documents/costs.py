"""The cost of a plan: the documents that changed are read, parsed and cut, and the tokens of new texts are counted.

Texts whose vectors are kept are not counted: they were paid for. Of many documents a sample is read, spread evenly over
all of them, and scaled by their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import islice
from typing import Final

from instep.domain.jobs import JobPart, SlicePlan
from instep.domain.manifest import Action, DocumentChange
from instep.domain.money import Estimate
from instep.entities.documents.adapters import DocumentAdapters
from instep.errors import UserError
from instep.pipeline.documents.tokens import Tokens

#: Documents that are read at most.
MOST: Final = 20_000
#: From so many on the reader is told that it takes a while.
_MANY: Final = 500
_AT_ONCE: Final = 500


def estimate(setup: DocumentAdapters, slices: Sequence[SlicePlan], say: Callable[[str], None]) -> Estimate | None:
    """The texts, tokens and cost of these slices; None if embedding costs nothing, or nothing is to be embedded. Raises
    `UserError` where it cannot be told.
    """
    from instep.pipeline.documents.pipeline import DocumentProgram
    from instep.pipeline.documents.row_program import RowProgram
    from instep.pipeline.documents.texts_counted import TextCounter, given_texts

    tariff = setup.tariff
    if tariff is None or next(_written(slices), None) is None:
        return None
    part = JobPart(setup.ref, "", "", setup.fingerprint, setup.buckets, 0, 0, True)
    program = setup.programs(part, 0, setup.target)
    if not isinstance(program, DocumentProgram) or isinstance(program, RowProgram) or program.transformed:
        raise UserError("tokens are not counted for rows of tables, nor where a transform changes texts")
    sizes = (each.size for each in _written(slices))
    documents, size = reduce(lambda sums, each: (sums[0] + 1, sums[1] + each), sizes, (0, 0))
    every = -(-documents // MOST)
    read = -(-documents // every)
    if read >= _MANY:
        say(f"counting the tokens of {read:,} documents" + (f" of {documents:,}" if every > 1 else ""))
    count = TextCounter(program, Tokens("openai", tariff.model))
    sampled = 0
    chosen = islice(_written(slices), 0, None, every)
    while some := list(islice(chosen, _AT_ONCE)):
        given_texts(program, some, count.take)
        sampled += sum(each.size for each in some)
    scale = 1.0 if every == 1 else size / sampled if sampled else documents / read
    tokens = round(count.tokens * scale)
    return Estimate(
        texts=round(count.texts * scale),
        tokens=tokens,
        cost=None if tariff.price is None else (tariff.of_batches if tariff.batched else tariff).cost(tokens),
        documents=documents,
        read=read,
        counted=count.known,
    )


def _written(slices: Sequence[SlicePlan]) -> Iterator[DocumentChange]:
    """The documents that are read, slice by slice."""
    return (each for part in slices for each in part.changes if each.action is not Action.DELETE)

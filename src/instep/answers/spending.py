"""Money: what jobs have paid for embedding."""

from __future__ import annotations

from collections.abc import Iterable

from instep.answers.answer import Answer
from instep.domain import money
from instep.domain.texts import amount


class Spent(Answer):
    """Texts that were embedded for money, their tokens as the endpoint has counted them, and what they have `cost` in
    the currency of `price`, with what waves that died may have cost; null without a price.
    """

    texts: int
    tokens: int
    cost: float | None

    def __str__(self) -> str:
        told = f"{amount(self.texts, 'text')} embedded, {amount(self.tokens, 'token')}"
        return told if self.cost is None else f"{told}, {money.amount_text(round(self.cost * money.UNIT))}"


def spent_answer(found: Iterable[money.Spent]) -> Spent | None:
    """The sum of these; None if nothing was paid for."""
    whole = sum_of(found)
    if not any(whole):
        return None
    return Spent(texts=whole.texts, tokens=whole.tokens, cost=whole.cost / money.UNIT if whole.cost else None)


def sum_of(found: Iterable[money.Spent]) -> money.Spent:
    whole = money.Spent()
    for each in found:
        whole = whole.plus(each)
    return whole

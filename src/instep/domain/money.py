"""Money: what it costs to embed texts, what may be spent on it in a month, and what was.

Amounts are whole billionths of the user's currency, of which sums are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

#: Amounts in one unit of the currency.
UNIT: Final = 10**9
#: The price by the batch API, in times of the usual one.
_BATCHED: Final = 0.5
#: Tokens of a price.
_MILLION: Final = 10**6
#: A reservation takes no more than this part of a month's budget at first: it is lost if its worker is killed.
_SHARE: Final = 10


class Bill(NamedTuple):
    """Texts that were embedded, and their tokens as the endpoint has counted them. `untold`: the most tokens of
    requests that may have been billed, and of which it did not say how many they were.
    """

    texts: int = 0
    tokens: int = 0
    untold: int = 0

    def plus(self, other: Bill) -> Bill:
        return Bill(self.texts + other.texts, self.tokens + other.tokens, self.untold + other.untold)

    @property
    def most(self) -> int:
        """The most tokens that are billed."""
        return self.tokens + self.untold


NO_BILL: Final = Bill()


class Spent(NamedTuple):
    """Texts and tokens that were billed, and an amount: of these, and of what waves that died may have cost."""

    texts: int = 0
    tokens: int = 0
    cost: int = 0

    def plus(self, other: Spent) -> Spent:
        return Spent(self.texts + other.texts, self.tokens + other.tokens, self.cost + other.cost)


NOTHING_SPENT: Final = Spent()


class Granted(NamedTuple):
    """An amount that was reserved, and what of the month's budget was `spent` and `held` by other waves before. It is
    `short` if less than was wanted was left; `held` may become free again.
    """

    month: str
    cost: int
    short: bool
    spent: int
    held: int


class Estimate(NamedTuple):
    """The cost of a plan: texts that are to be embedded, their tokens, and an amount if the price is declared. Of its
    `documents` so many were `read`; `counted` is False where tokens are estimated by characters.
    """

    texts: int
    tokens: int
    cost: int | None
    documents: int
    read: int
    counted: bool


@dataclass(frozen=True, slots=True)
class Tariff:
    """The price of a million tokens of a model, and the budget of a calendar month, each in the user's currency if
    declared. `batched`: what can be is embedded by the batch API.
    """

    model: str
    price: float | None = None
    budget: float | None = None
    batched: bool = False

    @property
    def of_batches(self) -> Tariff:
        """The tariff of the batch API."""
        return replace(self, price=None if self.price is None else self.price * _BATCHED)

    @property
    def per_token(self) -> float:
        """Billionths for each token."""
        return (self.price or 0.0) * UNIT / _MILLION

    @property
    def limit(self) -> int | None:
        return None if self.budget is None else math.floor(self.budget * UNIT)

    def cost(self, tokens: int) -> int:
        return math.ceil(tokens * self.per_token)

    def tokens(self, cost: int) -> int:
        """The tokens that this amount is enough for."""
        return int(cost / self.per_token) if self.per_token else 0

    def wanted(self, tokens: int, tried: int, *, whole: bool) -> int:
        """The amount to reserve for a wave of so many tokens at most, which was too little so many times. Unless it
        has to be enough for the `whole` wave, it is a share of the budget.
        """
        cost = self.cost(tokens) << tried
        return cost if whole or self.limit is None else min(cost, max(1, self.limit // _SHARE) << tried)


def month_of(at: int) -> str:
    """The calendar month, in UTC, of a time in milliseconds: `2026-11`."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m")


def next_month(month: str) -> str:
    """The first day of the month after it."""
    year, number = map(int, month.split("-"))
    return f"{year + number // 12}-{number % 12 + 1:02}-01"


def amount_text(cost: int) -> str:
    """An amount for people: `12.50`, and more places where it is small."""
    value = cost / UNIT
    places = 2 if value == 0 or value >= 1 else min(9, 1 - math.floor(math.log10(value)))
    return f"{value:,.{max(2, places)}f}"

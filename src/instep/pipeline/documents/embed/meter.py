"""The meter of an embedder that costs money: counts what is billed, and lets nothing be asked for beyond its allowance.

One meter is shared by all tasks of a wave in this process. A copy that travels to another one has its share alone, and
reports its bill with what the task has done.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from instep.domain.money import Bill
from instep.errors import Overdrawn

#: Tokens that a model may put around a text: Voyage has a sentence before each, of ten.
_AROUND: Final = 16


def most_tokens(texts: Sequence[str]) -> int:
    """The most tokens that these texts can be: each token stands for a byte at least."""
    return sum(len(each.encode()) + _AROUND for each in texts)


class Paid:
    """A request: costs the most it can until it is known what it has cost."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.bill = Bill(0, 0, most)

    def nothing(self) -> None:
        """Record that the request was refused, or never sent."""
        self.bill = Bill()

    def tokens(self, texts: int, tokens: int | None) -> None:
        """Record that the request was answered; `tokens` is None if the answer does not say its cost."""
        self.bill = Bill(texts, 0, self.most) if tokens is None else Bill(texts, tokens, 0)


class Meter:
    """Counts the tokens that requests are billed for, and stops a request that could cost more than is `allowed`, if
    that is limited. `shares`: the number of tasks that copies go to.
    """

    def __init__(self, allowed: int | None = None, shares: int = 1) -> None:
        self._allowed = allowed
        self._shares = shares
        self._lock = threading.Lock()
        self._open = 0
        self.bill = Bill()
        #: Whether copies of it count elsewhere.
        self.travelled = False

    def __reduce__(self) -> tuple[type[Meter], tuple[int | None]]:
        self.travelled = True
        return Meter, (None if self._allowed is None else self._allowed // self._shares,)

    @property
    def limited(self) -> bool:
        return self._allowed is not None

    @contextmanager
    def request(self, texts: Sequence[str]) -> Iterator[Paid]:
        """A request for the vectors of these texts. Raises `Overdrawn`, before it is sent, if it may cost more than is
        left.
        """
        paid = Paid(most_tokens(texts))
        with self._lock:
            if self._allowed is not None and self.bill.most + self._open + paid.most > self._allowed:
                raise Overdrawn("the budget that is reserved for this wave is used up")
            self._open += paid.most
        try:
            yield paid
        finally:
            with self._lock:
                self._open -= paid.most
                self.bill = self.bill.plus(paid.bill)

"""Lists of answers. The models of answers are elsewhere, since a run that finds nothing to do does not need them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self, SupportsIndex, TypeVar, overload

from instep.answers import shown

T = TypeVar("T")


class Answers(list[T]):
    """Answers in their order. A notebook shows them as a table."""

    def __repr__(self) -> str:
        return shown.lines(self)

    def _repr_html_(self) -> str:
        return shown.table([shown.fields(each) for each in self.answers()])

    @overload
    def __getitem__(self, at: SupportsIndex) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> Self: ...

    def __getitem__(self, at: SupportsIndex | slice) -> T | Self:
        """One of them, or some, which are shown alike."""
        return type(self)(super().__getitem__(at)) if isinstance(at, slice) else super().__getitem__(at)

    def answers(self) -> Iterable[Any]:
        """The elements, as JSON has them."""
        return self

"""Setups of a process that lives for long: made anew from time to time, since what they tell of their sources ages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from instep.domain.refs import PartitionRef
from instep.entities.setup import EntitySetup
from instep.errors import InstepError


class SetupCache(Mapping[PartitionRef, EntitySetup]):
    """Of the same partitions always. What is in hand goes on with the setup that it was begun with."""

    def __init__(
        self,
        setups: Iterable[EntitySetup],
        make: Callable[[], Iterable[EntitySetup]] | None,
        tell: Callable[[str], None],
    ) -> None:
        self._setups = {setup.ref: setup for setup in setups}
        self._make = make
        self._tell = tell

    def renew(self) -> None:
        """If that cannot be done now, those that are there stay."""
        if self._make is None:
            return
        try:
            made = {setup.ref: setup for setup in self._make()}
        except InstepError as error:
            self._tell(str(error))
        else:
            self._setups = {ref: made.get(ref, setup) for ref, setup in self._setups.items()}

    def __getitem__(self, ref: PartitionRef) -> EntitySetup:
        return self._setups[ref]

    def __iter__(self) -> Iterator[PartitionRef]:
        return iter(self._setups)

    def __len__(self) -> int:
        return len(self._setups)

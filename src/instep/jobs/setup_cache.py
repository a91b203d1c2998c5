"""Cache of entity setups in a long-lived process, renewed from time to time because sources change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from instep.domain.refs import PartitionRef
from instep.entities.setup import EntitySetup
from instep.errors import InstepError


class SetupCache(Mapping[PartitionRef, EntitySetup]):
    """Setups by partition. A part in work keeps the setup that it started with."""

    def __init__(
        self,
        setups: Iterable[EntitySetup],
        make: Callable[[], Iterable[EntitySetup]] | None,
        tell: Callable[[str], None],
        refs: Callable[[], Collection[PartitionRef]] | None = None,
    ) -> None:
        """`refs`: the partitions that it is to have; by default always those that it was made with."""
        self._setups = {setup.ref: setup for setup in setups}
        self._make = make
        self._tell = tell
        self._refs = refs

    def grow(self) -> None:
        """Renew when there are partitions to have that it has not. Raises the error of what cannot be made."""
        if self._make is not None and self._refs is not None and not self._setups.keys() >= set(self._refs()):
            self._setups = {setup.ref: setup for setup in self._make()}

    def renew(self) -> None:
        """Make the setups again; on an error, keep the old ones."""
        if self._make is None:
            return
        try:
            made = {setup.ref: setup for setup in self._make()}
        except InstepError as error:
            self._tell(str(error))
        else:
            kept = made if self._refs is not None else self._setups
            self._setups = {ref: made.get(ref, setup) for ref, setup in kept.items()}

    def __getitem__(self, ref: PartitionRef) -> EntitySetup:
        return self._setups[ref]

    def __iter__(self) -> Iterator[PartitionRef]:
        return iter(self._setups)

    def __len__(self) -> int:
        return len(self._setups)

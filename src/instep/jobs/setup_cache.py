"""Cache of entity setups in a long-lived process, renewed from time to time because sources change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from instep.domain.refs import PartitionRef
from instep.entities.setup import EntitySetup
from instep.errors import InstepError


class SetupCache(Mapping[PartitionRef, EntitySetup]):
    """Setups by partition; the set of partitions never changes. A part in work keeps the setup that it started with."""

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
        """Make the setups again; on an error, keep the old ones."""
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

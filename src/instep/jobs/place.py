"""The place of a worker among those of one process: what it leaves to them, and when all are idle."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from instep.domain.refs import PartitionRef
from instep.jobs.idleness import Idleness


@dataclass(frozen=True, slots=True)
class Place:
    """`leaves`: the partitions that another worker of the process looks after. `stopping` tells it to end."""

    name: str = ""
    idleness: Idleness | None = None
    leaves: Callable[[PartitionRef], bool] = lambda _: False
    stopping: threading.Event | None = None

    def stops(self) -> bool:
        return self.stopping is not None and self.stopping.is_set()

    def start(self) -> int:
        """A look begins, and maybe work."""
        return self.idleness.start(self.name) if self.idleness is not None else 0

    def stop(self, *, worked: bool) -> None:
        """The look that was started ends."""
        if self.idleness is not None:
            self.idleness.stop(self.name, worked=worked)

    def idle(self, began: int) -> bool:
        """Whether, after a look that found nothing, all are idle."""
        return self.idleness is None or self.idleness.found_nothing(self.name, began)


#: Of a worker that is the only one of its process.
ALONE = Place()

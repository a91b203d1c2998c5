"""Cache of keys that no cover touched lately: a reader that polls sees mostly the same keys, and saves a query.

What was so at one moment still is but for later events, and those are among the offers, which every read looks through:
a row is kept there for three minutes from its event. So a minute may go by, and another two in which an insert is under
way. Who cleans the offers meanwhile, elsewhere, can have a covered key given once more in that minute, if the source
writes it again: leasing it asks the truth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_SECONDS = 60.0
#: So many keys are remembered; beyond that, all are forgotten.
_MOST = 100_000


class Untouched:
    """Of one queue, in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: dict[int, float] = {}

    def among(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of these need not be asked again."""
        import numpy as np

        asked, since = self._asked, self._clock() - _SECONDS
        return np.fromiter((asked.get(key, since) > since for key in keys.tolist()), np.bool_, len(keys))

    def now(self) -> float:
        """To be taken before they are asked."""
        return self._clock()

    def remember(self, keys: Iterable[int], asked: float) -> None:
        if len(self._asked) > _MOST:
            self.forget()
        self._asked |= dict.fromkeys(keys, asked)

    def forget(self) -> None:
        self._asked = {}

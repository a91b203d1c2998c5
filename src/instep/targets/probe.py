"""Probes that `check` makes at a store, to see whether it may be written, and removes again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from instep.errors import InstepError, Transient, Unknown


def probe(make: Callable[[], object], remove: Callable[[], object]) -> None:
    """Make something and remove it, also if the answer to making it was lost: it may be there."""
    try:
        make()
    except (Transient, Unknown):
        with suppress(InstepError):
            remove()
        raise
    remove()

"""Loading what a first wave needs, while a process that watches waits for something to do."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Final

_MODULES: Final = (
    "instep.document_state.cuts",
    "instep.document_state.difference",
    "instep.pipeline.documents.row_reading",
    "instep.pipeline.documents.writing",
    "instep.pipeline.engine.inline",
)


def load_early() -> None:
    """Import them, in a thread. It takes a second or two, which whatever comes first would wait for. If one is missing,
    its user says so.
    """
    with suppress(ImportError):
        for each in _MODULES:
            importlib.import_module(each)
        import pyarrow as pa

        pa.array([""])  # With the first array made of a list, PyArrow looks for pandas, which takes long.

"""PySpark's daemon, with what a task of ours imports loaded before it forks a Python worker.

PySpark forks first, and each new worker imports Arrow and us for itself: a second of a core. There is a new one for
every task that failed, and for each core that had none yet. Nothing here starts a thread that a fork could lose: Lance
does, so a worker imports that itself.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Final

_LOADED: Final = (
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyspark.worker",
    "instep.pipeline.documents.pipeline",
    "instep.pipeline.engine.tasks",
    "instep.pipeline.tables.writing",
)


def main() -> None:
    from pyspark.daemon import manager

    for each in _LOADED:
        import_module(each)
    # Neither collected nor copied by workers.
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()

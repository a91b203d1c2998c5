"""What a first wave needs is loaded while a process that watches waits: what comes first need not wait for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from .projects import home


@pytest.mark.parametrize(
    ("options", "early"), [({"watch": 1.0}, True), ({}, False), ({"watch": 1.0, "until_idle": True}, False)]
)
def test_a_process_that_watches_loads_early(
    options: dict[str, Any], early: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = Event()
    monkeypatch.setattr("instep.pipeline.early_loading.load_early", loaded.set)
    monkeypatch.setattr("instep.jobs.serve.serve_each_entity", lambda *_, **__: loaded.wait(10 if early else 0.1))
    home(tmp_path).open().worker(**options)
    assert loaded.is_set() == early


def test_all_that_is_loaded_early_is_there() -> None:
    code = (
        "import sys; from instep.pipeline import early_loading as early; early.load_early(); "
        "assert not set(early._MODULES) - set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

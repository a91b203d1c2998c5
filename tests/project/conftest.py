from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from instep.project import InvalidProject, Project, load_project

Load = Callable[..., Project]
Reject = Callable[..., InvalidProject]

BASE = """\
name: my-project
targets:
  index: {type: lance, uri: .instep/index}
entities:
  Document:
    source: {type: files, path: docs}
"""


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a project file and load it."""

    def load(text: str, environment: Mapping[str, str] | None = None) -> Project:
        (tmp_path / "instep.yaml").write_text(text, encoding="utf-8")
        return load_project(tmp_path, environment=environment or {})

    return load


@pytest.fixture
def reject(load: Load) -> Reject:
    """Load what must be refused; returns the error."""

    def reject(text: str, environment: Mapping[str, str] | None = None) -> InvalidProject:
        with pytest.raises(InvalidProject) as caught:
            load(text, environment)
        return caught.value

    return reject

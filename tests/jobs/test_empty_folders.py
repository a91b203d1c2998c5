"""A folder of several in which nothing is any more may be a volume that is away: its documents stay until a user says
that it is empty.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import instep
from instep.jobs.entity_result import EntityResult

_PROJECT = """\
name: p
engine: inline
targets: {index: {type: lance, uri: .instep/index}}
entities:
  Document:
    source: {type: files, path: [docs, volume]}
    embed: {type: hashing, dimensions: 16}
"""


def run(folder: Path, **options: Any) -> EntityResult:
    (result,) = instep.load(folder).run(**options)
    return result


def test_documents_of_an_empty_folder_go_when_a_user_says_that_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "instep.yaml").write_text(_PROJECT)
    for each in ("docs", "volume"):
        (tmp_path / each).mkdir()
        (tmp_path / each / "a.md").write_text(f"something in {each}")
    assert run(tmp_path).counts.written == 2
    (tmp_path / "volume/a.md").unlink()
    held = run(tmp_path)
    assert held.counts.deleted == 0
    assert any("an empty folder" in each and "--allow-empty" in each for each in held.plan.found.problems)
    assert run(tmp_path, allow_empty=True).counts.deleted == 1
    assert not run(tmp_path).plan.found.problems, "from now on it is known to be empty"

"""A project of a few notes, some of which only readers find."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from instep.app import Instep, load

PROJECT: Final = """\
name: notes
targets:
  lance: {type: lance, uri: .instep/lance}
entities:
  Note:
    source: {type: files, path: docs}
    columns: {acl: "string[]", team: string}
    readers: acl
"""
#: Name, readers, team. All are about zebras.
NOTES: Final = (
    ("open", "public", "herd"),
    ("wild", "public", "herd"),
    ("tame", "public", "zoo"),
    ("closed", "group:ops", "ops"),
)


def write(folder: Path) -> Path:
    """Write the project there."""
    (folder / "docs").mkdir()
    for name, reader, team in NOTES:
        text = f"---\nacl: ['{reader}']\nteam: {team}\n---\n# {name.title()}\n\nThe {name} zebra.\n"
        (folder / "docs" / f"{name}.md").write_text(text)
    (folder / "instep.yaml").write_text(PROJECT)
    return folder


def indexed(folder: Path) -> Instep:
    """The project, indexed there."""
    project = load(write(folder))
    project.run()
    return project


#: As often as a test does it, and as often as it is promised.
SO_OFTEN: Final = pytest.mark.parametrize("rebuilds", [3, pytest.param(20, marks=pytest.mark.long)])


def during_rebuilds(folder: Path, ask: Callable[[], set[int | None]], rebuilds: int) -> None:
    """Ask again and again while another project of this folder rebuilds its index.

    `ask` fails on an error or an empty answer, and returns up to when the answer is complete: after each rebuild that
    is what the ledger says.
    """
    asked, before = 0, 0
    with ThreadPoolExecutor(1) as pool:
        for _ in range(rebuilds):
            rebuilt = pool.submit(load(folder).run, full_refresh=True)
            while not rebuilt.done():
                ask()
                asked += 1
            assert [each.problem for each in rebuilt.result()] == [None]
            (status,) = load(folder).status()
            assert status.watermark is not None
            assert status.watermark > before
            assert ask() == {status.watermark}
            before = status.watermark
    print(f"{asked} questions during {rebuilds} rebuilds")
    assert asked >= rebuilds

"""A project of a few notes, some of which only readers find."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

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


def during_twenty_rebuilds(folder: Path, ask: Callable[[], None]) -> int:
    """Ask again and again while another project of this folder rebuilds its index, and return how often."""

    def rebuild() -> None:
        for _ in range(20):
            assert [each.problem for each in load(folder).run(full_refresh=True)] == [None]

    asked = 0
    with ThreadPoolExecutor(1) as pool:
        rebuilds = pool.submit(rebuild)
        while not rebuilds.done():
            ask()
            asked += 1
            time.sleep(0)
        rebuilds.result()
    return asked

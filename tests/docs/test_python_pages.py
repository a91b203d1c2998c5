"""Python in the documentation works as written, and is typed: `mypy --strict` has nothing to say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import instep

ROOT = Path(__file__).parents[2]
PAGES = ("python", "retrievers")
PROJECT = """\
name: notes
engine: inline
targets: {lance: {type: lance, uri: .instep/lance}}
entities:
  Note:
    source: {type: files, path: docs}
    columns: {acl: "string[]", team: string}
    readers: acl
"""


def program(page: str) -> str:
    """All blocks of the page, in order."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_work_one_after_the_other(tmp_path: Path, page: str) -> None:
    (tmp_path / "notes" / "docs").mkdir(parents=True)
    note = "---\nacl: [public]\nteam: ops\n---\n# Printers\n\nThe printer is on fire.\n"
    (tmp_path / "notes" / "docs" / "printers.md").write_text(note)
    (tmp_path / "notes" / "instep.yaml").write_text(PROJECT)
    instep.load(tmp_path / "notes").run()
    done = subprocess.run(
        [sys.executable, "-c", program(page)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "project:///docs/printers.md" in done.stdout


def test_mypy_accepts_the_pages_and_notices_a_mistake(tmp_path: Path) -> None:
    for page in PAGES:
        (tmp_path / f"{page}.py").write_text(program(page))
    (tmp_path / "wrong.py").write_text("import instep\n\ninstep.load('notes').search('x')[0].reff\ninstep.Hitt\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *map(str, sorted(tmp_path.glob("*.py")))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.partition(": error: ")[0].rpartition("/")[2] for line in errors] == ["wrong.py:3", "wrong.py:4"], done

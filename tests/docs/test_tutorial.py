"""The tutorial works as it is written, in at most eight commands and three minutes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.blocks import DOCS, blocks, commands, run

TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")


def test_the_tutorial_leads_from_an_empty_folder_to_a_filtered_hybrid_search(tmp_path: Path) -> None:
    install, *others = commands(TUTORIAL)
    assert len(others) + 1 <= 8
    # The package is here already; that it can be installed is seen in `tests/packaging`.
    assert install == "pip install 'instep[static]'"
    (project,) = blocks(TUTORIAL, "yaml")
    (tmp_path / "instep.yaml").write_text(project)
    assert not {"printing", "jam"} & {*re.findall(r"\w+", blocks(TUTORIAL, "console")[1].lower())}
    program = "set -e\n" + "\n".join(f"{each}\necho" for each in others)
    said = run(program, tmp_path, seconds=180)
    assert "found by words and meaning" in said
    assert "docs/parking.md" not in said
    best, _, other = said.rpartition("found by words")[2].partition("2. ")
    assert "docs/printers.md" in best
    assert "weak" not in best
    assert "docs/coffee.md" in other
    assert "weak" in other

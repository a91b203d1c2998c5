"""What was proved is proved again when any file of it has changed."""

from __future__ import annotations

from pathlib import Path

from tests.simulator.proof import FOLDERS, ROOT, digest, files, is_proved


def test_any_change_of_a_file_asks_for_the_proof(tmp_path: Path) -> None:
    assert len(list(files(ROOT))) > 50
    proved = tmp_path / "proved.txt"
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("a = 1\n")
    assert not is_proved(tmp_path, proved)
    for folder in FOLDERS:
        file = tmp_path / folder / "a.py"
        proved.write_text(digest(tmp_path))
        assert is_proved(tmp_path, proved)
        file.write_text("a = 2\n")
        assert not is_proved(tmp_path, proved)
        proved.write_text(digest(tmp_path))
        file.rename(file.with_name("b.py"))
        assert not is_proved(tmp_path, proved)

"""What was proved is proved again when any file of it has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof import ROOMS, ROOT, digest, files, is_proved


@pytest.mark.parametrize("room", ROOMS)
def test_any_change_of_a_file_asks_for_the_proof(tmp_path: Path, room: str) -> None:
    assert len(list(files(room))) > 50
    assert [each for each in ROOMS[room].depends if not (ROOT / each).exists()] == []
    proved = tmp_path / "proved.txt"
    places = [tmp_path / each if "." in each else tmp_path / each / "a.py" for each in ROOMS[room].depends]
    for file in places:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("a = 1\n")
    assert not is_proved(room, tmp_path, proved)
    for file in places:
        proved.write_text(f"other 123\n{room} {digest(room, tmp_path)}\n")
        assert is_proved(room, tmp_path, proved)
        file.write_text("a = 2\n")
        assert not is_proved(room, tmp_path, proved)
    proved.write_text(f"{room} {digest(room, tmp_path)}\n")
    places[0].rename(places[0].with_name("b.py"))
    assert not is_proved(room, tmp_path, proved)

"""Proof of death: only for a worker whose lock file is here and free."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from instep.errors import UserError
from instep.ledger.liveness import LockFiles

HOLD = """
import sys, time
from pathlib import Path
from instep.ledger.liveness import LockFiles
end = LockFiles(Path(sys.argv[1])).begin("w1")
print("held", flush=True)
time.sleep(60)
"""


def test_a_living_worker_is_not_dead_and_a_killed_one_is(tmp_path: Path) -> None:
    files = LockFiles(tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert not files.proved_dead("w1")
        process.send_signal(signal.SIGSTOP)
        assert not files.proved_dead("w1")
        process.kill()
    assert files.proved_dead("w1")
    assert files.proved_dead("w1"), "who died while proving it must not take the proof along"
    files.forget("w1")
    assert not files.proved_dead("w1")


def test_a_worker_that_was_never_here_is_not_proved_dead(tmp_path: Path) -> None:
    assert not LockFiles(tmp_path).proved_dead("elsewhere")


def test_a_worker_that_ended_in_good_order_leaves_nothing_behind(tmp_path: Path) -> None:
    files = LockFiles(tmp_path / "workers")
    end = files.begin("w2")
    files.forget("w2")
    end()
    assert list((tmp_path / "workers").iterdir()) == []


def test_a_worker_that_ended_without_giving_back_its_slices_is_known_to_be_dead(tmp_path: Path) -> None:
    files = LockFiles(tmp_path)
    end = files.begin("w3")
    assert not files.proved_dead("w3")
    end()
    assert files.proved_dead("w3")


def test_a_folder_that_takes_no_locks_is_an_error_of_its_setting(tmp_path: Path) -> None:
    locks = LockFiles(Path("/proc/instep/workers"))
    for refused in (locks.check, lambda: locks.begin("w1")):
        with pytest.raises(UserError, match="`state` cannot be written") as error:
            refused()
        assert error.value.where == "/proc/instep"
        assert "instep.yaml" in (error.value.hint or "")
    locks = LockFiles(tmp_path / "new" / "workers")
    assert locks.check() == "can be written"
    assert list(tmp_path.iterdir()) == [], "a check makes nothing"


def test_a_worker_is_not_proved_dead_while_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, lock, found = LockFiles(tmp_path), fcntl.flock, list[bool]()

    def others_look_first(file: int, how: int) -> None:
        if how == fcntl.LOCK_EX:
            found.append(files.proved_dead("w5"))
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", others_look_first)
    end = files.begin("w5")
    assert found == [False]
    assert not files.proved_dead("w5")
    assert [each.name for each in tmp_path.iterdir()] == ["w5.lock"]
    end()
    assert files.proved_dead("w5")


def test_all_that_are_dead_are_known_by_their_free_locks(tmp_path: Path) -> None:
    files = LockFiles(tmp_path / "workers")
    assert files.all_dead() == [], "there is no folder yet"
    ends = {name: files.begin(name) for name in ("w6", "w7", "w8")}
    ends["w6"]()
    ends["w8"]()
    assert files.all_dead() == ["w6", "w8"]
    ends["w7"]()

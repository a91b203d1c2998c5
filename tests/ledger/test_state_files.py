"""State files behave alike in a folder and at a URL; what cannot be reached is not lost, and nobody's are another's."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import fsspec
import pytest

from instep.errors import Transient, UserError
from instep.ledger.state_files import FolderFiles, StateFiles, StoreFiles, state_files
from tests.servers.s3 import S3Server


def put(files: StateFiles, name: str, data: bytes) -> None:
    with files.staged(f"{name}.torn") as staged:
        staged.file.write(data)
        staged.file.flush()
        assert staged.path.read_bytes() == data
        staged.name = name


@pytest.fixture(params=["folder", "shared folder", "memory", "s3"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> StateFiles:
    if request.param == "folder":
        return FolderFiles(tmp_path / "beside")
    if request.param == "shared folder":
        return state_files(f"file://{tmp_path}", "one")
    if request.param == "memory":
        return state_files(f"memory://{uuid.uuid4().hex}", "one")
    server: S3Server = request.getfixturevalue("s3")
    return state_files(server.url(uuid.uuid4().hex), "one")


class TestContract:
    def test_what_is_written_is_read_listed_and_removed(self, files: StateFiles) -> None:
        assert files.written() == {}
        put(files, "a.arrow", b"0123456789")
        put(files, "b.plan", b"x")
        assert files.part("a.arrow", 3, 4) == b"3456"
        assert files.part("a.arrow", 8, 4) == b"89"
        assert files.part("a.arrow", 10, 4) == files.part("a.arrow", 12, 4) == b""
        for _ in range(2):
            with files.whole("a.arrow") as path:
                assert path.read_bytes() == b"0123456789"
        times = files.written()
        assert sorted(times) == ["a.arrow", "b.plan"]
        assert abs(times["a.arrow"] - times["b.plan"]) < 600, "seconds of one clock"
        files.remove("a.arrow")
        files.remove("a.arrow")
        assert sorted(files.written()) == ["b.plan"]
        assert files.at_hand

    def test_what_has_no_name_or_an_error_is_not_there(self, files: StateFiles) -> None:
        with files.staged("torn") as staged:
            staged.file.write(b"some")
        with pytest.raises(ZeroDivisionError), files.staged("torn") as staged:
            staged.name = f"{1 // staged.file.tell()}.arrow"
        assert files.written() == {}

    def test_what_is_not_there_is_said(self, files: StateFiles) -> None:
        put(files, "b.plan", b"x")
        with pytest.raises(FileNotFoundError):
            files.part("a.arrow", 0, 4)
        with pytest.raises(FileNotFoundError), files.whole("a.arrow") as path:
            path.read_bytes()

    def test_a_file_that_was_not_as_it_should_be_is_read_anew(self, files: StateFiles) -> None:
        put(files, "a.arrow", b"damaged")
        with pytest.raises(ZeroDivisionError), files.whole("a.arrow") as path:
            _ = 1 // (path.read_bytes() != b"damaged")
        put(files, "a.arrow", b"good")
        with files.whole("a.arrow") as path:
            assert path.read_bytes() == b"good"

    def test_a_probe_leaves_nothing(self, files: StateFiles) -> None:
        assert files.where in files.probe()
        assert files.written() == {}
        put(files, "b.plan", b"x")
        files.probe()
        assert sorted(files.written()) == ["b.plan"]

    def test_a_large_file_is_whole(self, files: StateFiles) -> None:
        data = os.urandom(1 << 20) * 12  # More than what is sent at once.
        put(files, "a.arrow", data)
        with files.whole("a.arrow") as path:
            assert path.read_bytes() == data


@pytest.mark.parametrize("kind", ["file", "s3"])
def test_ledgers_at_one_url_do_not_see_each_others_files(kind: str, s3: S3Server, tmp_path: Path) -> None:
    url = f"file://{tmp_path}" if kind == "file" else s3.url(uuid.uuid4().hex)
    one, two = state_files(url, "one"), state_files(f"{url}/", "two")
    put(one, "a.arrow", b"one")
    assert two.written() == {}
    two.remove("a.arrow")
    with pytest.raises(FileNotFoundError):
        two.part("a.arrow", 0, 1)
    assert one.part("a.arrow", 0, 3) == b"one"


def test_a_shared_folder_that_is_not_mounted_is_away_and_not_made(tmp_path: Path) -> None:
    files = state_files(f"file://{tmp_path}/mnt%20x", "one")
    for call in (
        lambda: put(files, "a.arrow", b"x"),
        lambda: files.part("a.arrow", 0, 1),
        lambda: files.whole("a.arrow").__enter__(),
        files.written,
        files.probe,
    ):
        with pytest.raises(Transient, match=f"there is no folder {tmp_path}/mnt x"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_down_or_refuses_us_is_an_outage_that_tells_no_secret(s3: S3Server) -> None:
    files = state_files(s3.url("outage"), "one")
    put(files, "a.arrow", b"x")
    calls = (lambda: put(files, "b.arrow", b"x"), lambda: files.part("a.arrow", 0, 1), files.written)
    s3.kill()
    try:
        for call in calls:
            with pytest.raises(Transient) as told:
                call()
            assert s3.url("outage") in str(told.value)
            assert s3.password not in str(told.value)
    finally:
        s3.revive()
    assert files.part("a.arrow", 0, 1) == b"x"


def test_credentials_that_are_wrong_are_an_outage(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "an0ther-s3cret")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    try:
        with pytest.raises(Transient, match="cannot be reached: PermissionError") as told:
            state_files(s3.url("refused"), "one").part("a.arrow", 0, 1)
    finally:
        fsspec.get_filesystem_class("s3").clear_instance_cache()
    assert "s3cret" not in str(told.value)


def test_a_library_that_is_missing_is_named() -> None:
    with pytest.raises(UserError, match="the library for gs:// is not installed") as told:
        StoreFiles("gs://bucket/one").probe()
    assert "gcsfs" in str(told.value)

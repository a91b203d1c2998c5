"""The files source on real folders, archives and memory: listing, identity, reading."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import unicodedata
import uuid
import zipfile
from pathlib import Path
from urllib.parse import unquote_to_bytes

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.identity import canonical_uri, document_id, file_uri
from instep.domain.manifest import difference
from instep.errors import UserError
from instep.sources.document_source import TooLarge, Unread, Unreadable, Vanished
from instep.sources.files import FilesSource
from instep.sources.globs import Globs
from instep.sources.url_files import base_uri
from tests.sources.rights import without_rights
from tests.sources.unsteady import Unsteady, unsteady

__all__ = ["unsteady"]

BIG = 1 << 30


def write(root: Path, **files: str | bytes) -> None:
    for name, content in files.items():
        put(root / name.replace("__", "/").replace("_md", ".md"), content)


def put(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def names(source: FilesSource, root: Path) -> list[str]:
    prefix = f"file://{root}/"
    return [each.uri.removeprefix(prefix) for each in source.list().documents]


class TestListing:
    def test_lists_sorted_with_size_and_times(self, tmp_path: Path) -> None:
        put(tmp_path / "b.md", "bb")
        put(tmp_path / "a/c.md", "c")
        listing = FilesSource((str(tmp_path),)).list()
        assert listing.complete
        assert [(each.uri, each.size) for each in listing.documents] == [
            (f"file://{tmp_path}/a/c.md", 1),
            (f"file://{tmp_path}/b.md", 2),
        ]
        status = (tmp_path / "b.md").stat()
        assert listing.documents[1].version == f"{status.st_mtime_ns}.{status.st_ctime_ns}"

    def test_include_and_exclude_are_relative_to_the_root(self, tmp_path: Path) -> None:
        root = tmp_path / "node_modules" / "docs"
        for name in ("a.md", "a.txt", "deep/er/b.md", "node_modules/c.md", "drafts/d.md", "drafts/keep.md", "x.md/y"):
            put(root / name, "x")
        assert names(FilesSource((str(root),), ("**/*.md",), ("**/node_modules/**", "drafts/")), root) == [
            "a.md",
            "deep/er/b.md",
        ]
        taken_back = FilesSource((str(root),), ("*.md",), ("drafts/*", "!keep.md", "x.md/"))
        assert names(taken_back, root) == ["a.md", "deep/er/b.md", "drafts/keep.md", "node_modules/c.md"]

    def test_what_no_include_takes_is_told_without_what_exclude_leaves_out(self, tmp_path: Path) -> None:
        for name in ("a.md", "b.txt", "deep/c.dat", "drafts/d.dat", "drafts/e.md"):
            put(tmp_path / name, "x")
        prefix = f"file://{tmp_path}/"
        found = FilesSource((str(tmp_path),), ("**/*.md",), ("drafts/",)).not_included()
        assert [each.removeprefix(prefix) for each in found] == ["b.txt", "deep/c.dat"]
        assert FilesSource((str(tmp_path),)).not_included() == []

    def test_a_file_under_two_roots_is_listed_once(self, tmp_path: Path) -> None:
        put(tmp_path / "sub/a.md", "a")
        source = FilesSource((str(tmp_path), str(tmp_path / "sub"), str(tmp_path / "sub/a.md")))
        assert names(source, tmp_path) == ["sub/a.md"]

    def test_a_root_that_is_a_file_is_taken_despite_the_patterns(self, tmp_path: Path) -> None:
        put(tmp_path / "notes", "n")
        assert names(FilesSource((str(tmp_path / "notes"),), ("*.md",)), tmp_path) == ["notes"]

    def test_a_missing_root_is_the_users_error(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="nowhere"):
            FilesSource((str(tmp_path / "nowhere"),)).list()

    def test_a_pattern_that_means_nothing_is_the_users_error(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="glob"):
            FilesSource((str(tmp_path),), ("a[",)).list()

    def test_relative_and_file_url_roots_name_the_same_documents(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(tmp_path / "a b/x.md", "x")
        monkeypatch.chdir(tmp_path)
        relative = FilesSource(("a b",)).list().documents
        assert relative == FilesSource((f"file://{tmp_path}/a%20b",)).list().documents
        assert relative[0].uri == f"file://{tmp_path}/a%20b/x.md"

    def test_progress_ends_with_the_number_found(self, tmp_path: Path) -> None:
        for number in range(2_001):
            (tmp_path / f"{number}.md").touch()
        told: list[int] = []
        FilesSource((str(tmp_path),)).list(told.append)
        assert told == [1_000, 2_000, 2_001]


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            b"with space.md",
            b"what?.md",
            b"hash#tag.md",
            b"100%.md",
            b"%20.md",
            b"new\nline.md",
            b"\xff\xfe invalid.md",
            b"a" * 252 + b".md",
            "ü".encode() * 126 + b".md",
            b";:@&=+$,.md",
            b"back\\slash.md",
            "漢字.md".encode(),
        ],
    )
    def test_any_name_is_listed_identified_and_read(self, tmp_path: Path, name: bytes) -> None:
        path = os.fsencode(tmp_path) + b"/" + name
        Path(os.fsdecode(path)).write_bytes(name)
        source = FilesSource((str(tmp_path),), ("*.md",))
        (found,) = source.list().documents
        assert found.uri == file_uri(path)
        assert unquote_to_bytes(found.uri.removeprefix("file://")) == path
        assert canonical_uri(found.uri) == found.uri
        assert source.read(found.uri, max_bytes=BIG).data == name

    def test_names_that_differ_in_form_or_case_only_stay_apart(self, tmp_path: Path) -> None:
        for name in (unicodedata.normalize("NFC", "é.md"), unicodedata.normalize("NFD", "é.md"), "A.md", "a.md"):
            put(tmp_path / name, name)
        documents = FilesSource((str(tmp_path),)).list().documents
        assert len({document_id(canonical_uri(each.uri)) for each in documents}) == 4

    @given(st.lists(st.binary(min_size=1, max_size=40).filter(lambda b: not set(b) & {0, 47}), min_size=2, unique=True))
    def test_different_names_have_different_uris(self, found: list[bytes]) -> None:
        assert len({canonical_uri(file_uri(b"/" + name)) for name in found}) == len(found)


class TestNamesInTheProject:
    @pytest.mark.parametrize("name", [b"plain.md", b"what?.md", b"new\nline.md", b"\xff\xfe.md", b"%2E.md", b"..md"])
    @pytest.mark.parametrize("root", ["docs", "./docs/", ".", "../beside", ".."])
    def test_a_document_under_a_relative_root_keeps_its_name_when_all_of_it_moves(
        self, tmp_path: Path, root: str, name: bytes
    ) -> None:
        project = tmp_path / "one" / "project"
        project.mkdir(parents=True)
        os.makedirs(os.path.join(project, root), exist_ok=True)  # noqa: PTH103, PTH118 - as it is declared
        file = os.path.join(os.fsencode(project), os.fsencode(root), name)  # noqa: PTH118 - paths are bytes
        Path(os.fsdecode(file)).write_bytes(name)
        source = FilesSource((root,), project=str(project))
        (before,) = source.list().documents
        assert before.uri.startswith("project:///")
        assert canonical_uri(before.uri) == before.uri
        assert source.path_of(before.uri) == os.path.normpath(file)
        (tmp_path / "one").rename(tmp_path / "two")
        moved = pickle.loads(pickle.dumps(FilesSource((root,), project=str(tmp_path / "two" / "project"))))
        (after,) = moved.list().documents
        assert after.uri == before.uri
        assert moved.holds(after.uri)
        assert moved.read(after.uri, max_bytes=BIG).data == name
        assert moved.part(after.uri, 1, 2) == name[1:3]
        with moved.open(after.uri) as opened:
            assert opened.read() == name
        with pytest.raises(Vanished):
            source.read(before.uri, max_bytes=BIG)

    def test_the_same_path_above_and_in_the_project_are_two_documents(self, tmp_path: Path) -> None:
        put(tmp_path / "docs/a.md", "above")
        put(tmp_path / "project/docs/a.md", "within")
        source = FilesSource(("docs", "../docs"), project=str(tmp_path / "project"))
        found = {each.uri: source.read(each.uri, max_bytes=BIG).data for each in source.list().documents}
        assert found == {"project:///../docs/a.md": b"above", "project:///docs/a.md": b"within"}
        assert len({document_id(canonical_uri(each)) for each in found}) == 2

    def test_a_file_is_one_document_however_its_root_is_spelled(self, tmp_path: Path) -> None:
        put(tmp_path / "project/docs/a.md", "a")
        put(tmp_path / "other/b.md", "b")
        there = tmp_path / "project"
        roots = ("docs", "docs/../docs/", "../project/docs", ".", "docs/a.md", str(there), f"file://{there}/docs")
        listed = FilesSource((*roots, str(tmp_path / "other")), project=str(there)).list().documents
        assert [each.uri for each in listed] == [f"file://{tmp_path}/other/b.md", "project:///docs/a.md"]

    def test_a_project_in_the_root_of_all_files(self, tmp_path: Path) -> None:
        put(tmp_path / "a.md", "a")
        relative = str(tmp_path).removeprefix("/")
        source = FilesSource((relative, f"{relative}/a.md"), project="/")
        (found,) = source.list().documents
        assert found.uri == f"project:///{relative}/a.md"
        assert source.read(found.uri, max_bytes=BIG).data == b"a"
        assert source._place(".") == (b"/", "project:///")

    def test_absolute_roots_and_links_are_named_as_ever(self, tmp_path: Path) -> None:
        put(tmp_path / "elsewhere/a.md", "a")
        put(tmp_path / "project/own.md", "own")
        (tmp_path / "project/link").symlink_to(tmp_path / "elsewhere")
        absolute = FilesSource((str(tmp_path / "elsewhere"),), project=str(tmp_path / "project"))
        assert [each.uri for each in absolute.list().documents] == [f"file://{tmp_path}/elsewhere/a.md"]
        relative = FilesSource((".",), project=str(tmp_path / "project")).list().documents
        assert [each.uri for each in relative] == ["project:///link/a.md", "project:///own.md"]

    def test_a_missing_relative_root_is_reported_by_its_path(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=f"{tmp_path}/nowhere cannot be listed"):
            FilesSource(("nowhere",), project=str(tmp_path)).list()

    def test_any_spelling_of_a_file_leads_to_its_names(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        project = tmp_path / "project"
        put(project / "docs/a b.md", "a")
        (tmp_path / "link").symlink_to(project)
        name = "project:///docs/a%20b.md"
        for folder in (project, project / "docs", tmp_path, tmp_path / "link"):
            monkeypatch.chdir(folder)
            path = os.path.relpath(project / "docs/a b.md", folder)
            said = [path, "docs/a b.md", str(project / "docs/a b.md"), name, f"file://{project}/docs/a%20b.md"]
            for root in (project, tmp_path / "link"):
                source = FilesSource(("docs",), project=str(root))
                for each in said:
                    assert name in source.names(each), (each, root)
        assert list(FilesSource(("docs",), project=str(project)).names("https://host/a.md")) == []


def test_one_of_several_folders_that_is_empty_is_a_problem_where_something_was_found_in_it(tmp_path: Path) -> None:
    put(tmp_path / "docs/a.md", "a")
    put(tmp_path / "volume/b.md", "b")
    put(tmp_path / "volume/deep/c.md", "c")
    source = FilesSource(("docs", "volume/"), ("*.md",), project=str(tmp_path))
    before = [each.uri for each in source.list().documents]
    (tmp_path / "volume").rename(tmp_path / "unmounted")
    (tmp_path / "volume").mkdir()
    after = source.list()
    assert [each.uri for each in after.documents] == ["project:///docs/a.md"]
    (problem,) = after.seen_from(before).problems
    assert problem.startswith(f"{tmp_path}/volume: an empty folder, and 2 documents were found there; mount what")
    assert after.with_empty_folders().seen_from(before).complete, "a user says that it is empty"
    assert after.seen_from(before[:1]).complete, "it may have been empty always"
    put(tmp_path / "volume/.keep", "")
    assert source.list().seen_from(before).complete, "it is meant to be empty"
    (tmp_path / "volume/.keep").unlink()
    (tmp_path / "docs/a.md").unlink()
    assert source.list().seen_from(before).complete, "the delete guard asks about an empty source"


class TestLinks:
    def test_links_are_followed_and_each_folder_is_listed_once(self, tmp_path: Path) -> None:
        put(tmp_path / "root/a.md", "a")
        put(tmp_path / "elsewhere/b.md", "b")
        (tmp_path / "root/link.md").symlink_to(tmp_path / "elsewhere/b.md")
        (tmp_path / "root/folder").symlink_to(tmp_path / "elsewhere")
        (tmp_path / "root/loop").symlink_to(tmp_path / "root")
        (tmp_path / "root/self.md").symlink_to("self.md")
        (tmp_path / "root/nowhere.md").symlink_to("gone")
        source = FilesSource((str(tmp_path / "root"),))
        listing = source.list()
        assert listing.complete
        assert names(source, tmp_path / "root") == ["a.md", "folder/b.md", "link.md"]
        for document in listing.documents[1:]:
            assert source.read(document.uri, max_bytes=BIG).data == b"b"

    def test_a_broken_link_is_a_problem_where_something_was_found_through_it(self, tmp_path: Path) -> None:
        put(tmp_path / "root/a.md", "a")
        put(tmp_path / "away/b.md", "b")
        put(tmp_path / "away/deep/c.md", "c")
        put(tmp_path / "file.md", "d")
        (tmp_path / "root/folder").symlink_to(tmp_path / "away")
        (tmp_path / "root/file.md").symlink_to(tmp_path / "file.md")
        (tmp_path / "root/folder.md").symlink_to("gone")
        source = FilesSource((str(tmp_path / "root"),))
        before = source.list()
        indexed = [each.uri for each in before.documents]
        assert before.seen_from(indexed).complete, "one that never led anywhere is no problem"
        (tmp_path / "away").rename(tmp_path / "unmounted")
        after = source.list()
        assert after.seen_from(indexed[:1]).complete
        (problem,) = after.seen_from(indexed).problems
        assert f"{tmp_path}/root/folder: a broken link, and 2 documents were found there; bring back" in problem
        (tmp_path / "file.md").unlink()
        assert len(source.list().seen_from(indexed).problems) == 2
        left = FilesSource((str(tmp_path / "root"),), exclude=("folder/", "file.md"))
        assert left.list().seen_from(indexed).complete, "what is not asked for any more may go"
        (tmp_path / "root/folder").unlink()
        (tmp_path / "root/file.md").unlink()
        assert source.list().seen_from(indexed).complete

    def test_a_folder_replaced_by_a_link_keeps_its_documents(self, tmp_path: Path) -> None:
        put(tmp_path / "root/part/deep/a.md", "a")
        source = FilesSource((str(tmp_path / "root"),), ("*.md",), ("left/",))
        before = names(source, tmp_path / "root")
        (tmp_path / "root/part").rename(tmp_path / "moved")
        (tmp_path / "root/part").symlink_to(tmp_path / "moved")
        assert names(source, tmp_path / "root") == before == ["part/deep/a.md"]
        (tmp_path / "root/left").symlink_to(tmp_path / "moved")
        assert names(source, tmp_path / "root") == before

    def test_links_that_lead_round_in_circles_end(self, tmp_path: Path) -> None:
        for name in "ab":
            put(tmp_path / f"outside/{name}/{name}.md", name)
            (tmp_path / f"outside/{name}/up").symlink_to(tmp_path / "outside")
        (tmp_path / "outside/a/other").symlink_to(tmp_path / "outside/b")
        (tmp_path / "outside/b/other").symlink_to(tmp_path / "outside/a")
        put(tmp_path / "root/c.md", "c")
        for name in ("one", "two"):
            (tmp_path / "root" / name).symlink_to(tmp_path / "outside")
        (tmp_path / "root/above").symlink_to(tmp_path)
        source = FilesSource((str(tmp_path / "root"),))
        assert source.list().complete
        assert names(source, tmp_path / "root") == ["c.md", "one/a/a.md", "one/b/b.md"]

    def test_the_names_of_files_are_not_those_of_folders(self, tmp_path: Path) -> None:
        for name in ("chart.js/logo.png", "chart.js/a.js", "src/b.js", "src/dir.js/c.png", "lib/d.ts"):
            put(tmp_path / name, "x")
        found = {
            patterns: names(FilesSource((str(tmp_path),), patterns), tmp_path)
            for patterns in [("**/*.js",), ("src/*.js",), ("lib",), ("chart.js/",), ("**/*.js", "!a.js")]
        }
        assert list(found.values()) == [
            ["chart.js/a.js", "src/b.js"],
            ["src/b.js"],
            ["lib/d.ts"],
            ["chart.js/a.js", "chart.js/logo.png"],
            ["src/b.js"],
        ]
        # What is left out is left out with all that is in it.
        assert names(FilesSource((str(tmp_path),), (), ("*.js",)), tmp_path) == ["lib/d.ts"]

    def test_a_pipe_is_no_document(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.md")
        assert FilesSource((str(tmp_path),)).list().documents == []
        with pytest.raises(Vanished):
            FilesSource((str(tmp_path),)).read(f"file://{tmp_path}/pipe.md", max_bytes=BIG)


class TestProblems:
    def test_an_unreadable_folder_makes_the_listing_incomplete(self, tmp_path: Path) -> None:
        put(tmp_path / "root/open/a.md", "a")
        put(tmp_path / "root/shut/b.md", "b")
        for parent in (tmp_path, *tmp_path.parents[:-2]):
            if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
                parent.chmod(0o755)
        (tmp_path / "root/shut").chmod(0)
        try:
            with without_rights():
                listing = FilesSource((str(tmp_path / "root"),)).list()
        finally:
            (tmp_path / "root/shut").chmod(0o755)
        assert [each.uri for each in listing.documents] == [f"file://{tmp_path}/root/open/a.md"]
        assert listing.problems == [f"{tmp_path}/root/shut: permission denied"]
        assert not listing.complete

    def test_a_folder_that_vanishes_in_mid_listing_makes_it_incomplete(self, tmp_path: Path) -> None:
        for number in range(1_000):
            put(tmp_path / f"files/{number}.md", "x")
        (tmp_path / "files/later").mkdir()

        def remove(_: int) -> None:
            if (tmp_path / "files/later").exists():
                (tmp_path / "files/later").rmdir()

        listing = FilesSource((str(tmp_path),)).list(remove)
        assert len(listing.documents) == 1_000
        assert listing.problems == [f"{tmp_path}/files/later: no such file or directory"]

    @pytest.mark.parametrize("error", [PermissionError(13, "denied"), FileNotFoundError("gone"), RuntimeError("busy")])
    def test_a_folder_of_a_store_that_cannot_be_listed_makes_it_incomplete(
        self, unsteady: Unsteady, error: Exception
    ) -> None:
        source = FilesSource((unsteady.url,))
        assert source.list().complete
        unsteady.broken["/b/deep"] = error
        listing = source.list()
        assert [each.uri.removeprefix(unsteady.base) for each in listing.documents] == ["/a.md", "/b/b.md"]
        assert [each.startswith(f"{unsteady.base}/b/deep: ") for each in listing.problems] == [True]
        unsteady.broken.clear()
        assert source.list().complete

    def test_a_file_of_a_store_that_cannot_be_looked_at_makes_it_incomplete(self, unsteady: Unsteady) -> None:
        unsteady.broken["/b/b.md"] = PermissionError(13, "denied")
        listing = FilesSource((unsteady.url,)).list()
        assert len(listing.documents) == 2
        assert not listing.complete

    def test_an_unreadable_file_is_unreadable(self, tmp_path: Path) -> None:
        put(tmp_path / "a.md", "a")
        (tmp_path / "a.md").chmod(0)
        tmp_path.chmod(0o755)
        for parent in tmp_path.parents[:-2]:
            if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
                parent.chmod(0o755)
        with without_rights(), pytest.raises(Unread, match="permission denied"):
            FilesSource((str(tmp_path),)).read(f"file://{tmp_path}/a.md", max_bytes=BIG)


class TestReading:
    def test_a_file_written_after_reading_has_another_version(self, tmp_path: Path) -> None:
        """However young it was, and whatever times it is given."""
        source = FilesSource((str(tmp_path),))
        path = tmp_path / "a.md"
        versions = set()
        for number in range(20):
            path.write_text(f"{number:04}")
            os.utime(path, (1_700_000_000, 1_700_000_000))
            (listed,) = source.list().documents
            found = source.read(listed.uri, max_bytes=BIG)
            assert found.version == source.list().documents[0].version
            versions.add(found.version)
        assert len(versions) == 20

    def test_gives_bytes_with_the_version_that_was_listed(self, tmp_path: Path) -> None:
        put(tmp_path / "a.md", b"\x00\xff")
        source = FilesSource((str(tmp_path),))
        (found,) = source.list().documents
        assert source.read(found.uri, max_bytes=BIG)[:3] == (b"\x00\xff", found.size, found.version)

    def test_a_removed_file_has_vanished(self, tmp_path: Path) -> None:
        put(tmp_path / "a/b.md", "x")
        source = FilesSource((str(tmp_path),))
        (found,) = source.list().documents
        (tmp_path / "a/b.md").unlink()
        with pytest.raises(Vanished):
            source.read(found.uri, max_bytes=BIG)
        (tmp_path / "a").rmdir()
        put(tmp_path / "a", "now a file")
        with pytest.raises(Vanished):
            source.read(found.uri, max_bytes=BIG)
        put(tmp_path / "c/b.md/d", "now a folder")
        with pytest.raises(Vanished):
            source.read(f"file://{tmp_path}/c/b.md", max_bytes=BIG)

    def test_a_file_over_the_limit_is_unreadable_and_not_read(self, tmp_path: Path) -> None:
        with (tmp_path / "a.md").open("wb") as file:
            file.truncate(1 << 40)
        with pytest.raises(TooLarge):
            FilesSource((str(tmp_path),)).read(f"file://{tmp_path}/a.md", max_bytes=1_000)

    def test_a_file_that_never_holds_still_is_unreadable(self, tmp_path: Path) -> None:
        path = tmp_path / "a.md"
        path.write_bytes(b"0" * 4_000_000)
        code = "import sys\nfile = open(sys.argv[1], 'ab', 0)\nwhile True: file.write(b'x')"
        writer = subprocess.Popen([sys.executable, "-S", "-c", code, str(path)])
        source = FilesSource((str(path),))
        reasons: set[str] = set()
        try:
            for _ in range(5_000):
                try:
                    content = source.read(f"file://{path}", max_bytes=BIG)
                except Unreadable as error:
                    reasons.add(str(error))
                    break
                assert content.size == len(content.data)
        finally:
            writer.kill()
            writer.wait()
        assert reasons == {"changes while it is being read"}
        assert source.read(f"file://{path}", max_bytes=BIG).size == path.stat().st_size


class TestUrls:
    def test_memory_files_are_listed_matched_and_read(self) -> None:
        root = f"/{uuid.uuid4().hex}/Docs"
        fs = fsspec.filesystem("memory")
        for name in ("a b.md", "A B.md", "sub/ü?#.md", "skip.txt"):
            fs.pipe_file(f"{root}/{name}", name.encode())
        source = pickle.loads(pickle.dumps(FilesSource((f"memory:/{root}",), ("**/*.md",))))
        listing = source.list()
        assert listing.complete
        assert len({document_id(canonical_uri(each.uri)) for each in listing.documents}) == 3
        read = {source.read(each.uri, max_bytes=BIG).data.decode() for each in listing.documents}
        assert read == {"a b.md", "A B.md", "sub/ü?#.md"}
        for each in listing.documents:
            content = source.read(each.uri, max_bytes=BIG)
            assert (content.size, content.version) == (each.size, each.version)

    def test_a_changed_file_changes_its_version_and_a_removed_one_vanishes(self) -> None:
        root = f"memory://{uuid.uuid4().hex}"
        fs = fsspec.filesystem("memory")
        fs.pipe_file(f"{root}/a.md", b"one")
        source = FilesSource((root,))
        (before,) = source.list().documents
        fs.pipe_file(f"{root}/a.md", b"two")
        (after,) = source.list().documents
        assert before.uri == after.uri
        assert before.version != after.version
        fs.pipe_file(f"{root}/b.md", b"")
        fs.rm_file(f"{root}/a.md")
        with pytest.raises(Vanished):
            source.read(before.uri, max_bytes=BIG)

    def test_an_archive_is_a_folder(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "Docs.zip", "w") as archive:
            archive.writestr("top/a.md", "# a")
            archive.writestr("top/deep/b c.md", "# b")
            archive.writestr("other/c.md", "# c")
        source = FilesSource((f"zip://top::{tmp_path}/Docs.zip",))
        documents = source.list().documents
        assert [each.uri for each in documents] == [
            f"zip://{tmp_path}/Docs.zip!/top/a.md",
            f"zip://{tmp_path}/Docs.zip!/top/deep/b%20c.md",
        ]
        assert [source.read(each.uri, max_bytes=BIG).data for each in documents] == [b"# a", b"# b"]
        again = FilesSource((f"zip://top::{tmp_path}/Docs.zip",)).list().documents
        assert again == documents
        with pytest.raises(TooLarge):
            source.read(documents[0].uri, max_bytes=2)

    def test_local_files_through_fsspec_nothing_changes_between_two_listings(self, tmp_path: Path) -> None:
        put(tmp_path / "a/x.md", "x")
        source = FilesSource((f"local://{tmp_path}",), ("*.md",))
        (found,) = source.list().documents
        assert source.read(found.uri, max_bytes=BIG)[:3] == (b"x", 1, found.version)
        (tmp_path / "a/x.md").write_text("longer")
        changed = difference(source.list().documents, {}, {found.uri: found.version}, complete=True, buckets=4).changes
        assert [each.reason for each in changed] == ["failed before; changed since"]

    def test_a_single_file_behind_a_url_is_a_root(self) -> None:
        path = f"memory://{uuid.uuid4().hex}/only.md"
        fsspec.filesystem("memory").pipe_file(path, b"one")
        source = FilesSource((path,), ("*.rst",))
        (found,) = source.list().documents
        assert found.uri.endswith("/only.md")
        assert source.read(found.uri, max_bytes=BIG).data == b"one"

    def test_a_missing_root_is_an_error_of_the_user(self, tmp_path: Path) -> None:
        for root in (f"memory://{uuid.uuid4().hex}", f"zip://::{tmp_path}/no.zip", "nosuch://x"):
            with pytest.raises(UserError):
                FilesSource((root,)).list()

    @pytest.mark.parametrize(
        ("url", "base"),
        [
            ("s3://Bucket/Docs/", "s3://bucket/Docs"),
            ("https://user:secret@Host:8443/Docs?sig=x#y", "https://host:8443/Docs"),
            ("memory://Docs/A b", "memory:///Docs/A%20b"),
            ("zip://top::s3://bucket/a.zip", "zip:///s3://bucket/a.zip!/top"),
            ("zip://::/tmp/a.zip", "zip:///tmp/a.zip!"),
            ("zip::https://u:p@h/a.zip?token=x", "zip:///https://h/a.zip!"),
        ],
    )
    def test_roots_have_a_canonical_uri_without_secrets(self, url: str, base: str) -> None:
        assert base_uri(url) == base

    def test_options_are_not_shown(self) -> None:
        assert "hunter2" not in repr(FilesSource(("s3://b",), storage_options={"secret": "hunter2"}))


class TestGlobs:
    @given(
        st.lists(
            st.sampled_from(["*.md", "**/*.txt", "*.c++", "a/", "c.++/", "/b/*", "!a/x.md", "c", "**/d/**"]), min_size=1
        ),
        st.lists(
            st.sampled_from(["a", "b", "c", "d", "x.md", "y.txt", "z.c++", "z.ccc", "c.++", "c.cc"]),
            min_size=1,
            max_size=4,
        ),
    )
    def test_decides_as_pathspec_does(self, patterns: list[str], parts: list[str]) -> None:
        from pathspec import GitIgnoreSpec

        path = "/".join(parts)
        by_pattern = GitIgnoreSpec.from_lines(patterns)
        last = next((p.include for p in reversed(list(by_pattern.patterns)) if p.match_file(path) is not None), False)
        assert Globs(patterns).matches(path) == bool(last)

    @pytest.mark.parametrize(
        "exclude", [[".git/"], [".git/", "c/"], ["a/c/"], ["/a/"], ["a/**/"], [".git/", "*.txt"], ["c/", "!a/c/"]]
    )
    def test_exclusion_agrees_with_pathspec(self, tmp_path: Path, exclude: list[str]) -> None:
        from pathspec import GitIgnoreSpec

        names = [".git", "x.md", "b/.git/x.md", "a/x.md", "a/c/x.md", "a/c/.git/c/x.md", "c/y.txt", "d/a/c", "d/c/x.md"]
        for name in names:
            put(tmp_path / name, name)
        listed = FilesSource((str(tmp_path),), exclude=tuple(exclude)).list().documents
        spec = GitIgnoreSpec.from_lines(exclude)
        found = {each.uri.removeprefix(f"file://{tmp_path}/") for each in listed}
        assert found == {name for name in names if not spec.match_file(name)}


def test_io_is_not_needed_to_pickle(tmp_path: Path) -> None:
    source = FilesSource((str(tmp_path), "memory://x"), ("*.md",), (), {"key": "value"})
    with io.BytesIO() as file:
        pickle.dump(source, file)
        assert pickle.loads(file.getvalue()) == source


def test_a_pattern_may_include_files_deep_in_an_excluded_folder(tmp_path: Path) -> None:
    for name in ("drafts/deep/keep.md", "drafts/deep/no.md", "drafts/no.md", "yes.md"):
        put(tmp_path / name, "text")
    source = FilesSource((str(tmp_path),), exclude=("drafts/**", "!drafts/deep/keep.md"))
    assert names(source, tmp_path) == ["drafts/deep/keep.md", "yes.md"]
    assert names(FilesSource((str(tmp_path),), exclude=("drafts/",)), tmp_path) == ["yes.md"]


def test_a_file_may_have_as_many_bytes_as_are_allowed(tmp_path: Path) -> None:
    put(tmp_path / "a.md", "12345")
    source = FilesSource((str(tmp_path),))
    (listed,) = source.list().documents
    assert source.read(listed.uri, max_bytes=5).data == b"12345"
    with pytest.raises(TooLarge):
        source.read(listed.uri, max_bytes=4)


def test_a_root_owns_the_files_below_it_and_no_neighbour() -> None:
    source = FilesSource(("memory://docs/a",))
    assert source.holds("memory:///docs/a")
    assert source.holds("memory:///docs/a/b.md")
    assert not source.holds("memory:///docs/ab/c.md")
    assert not source.holds("memory:///docs")

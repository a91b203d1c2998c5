"""The history of a git clone as Parquet: commits, parents, changes, people and files.

`export(clone, folder)` adds what is new since the last call, in files of their own, or, when history was rewritten,
exports all of it anew into another folder. Commits and changes stream through in blocks; people, and the
files that there are, are held in memory.

History is what `HEAD` can reach. Changes are those of commits with one parent or none (what a merge brings was
changed in the commits that it merges), and a renamed file is another one. Bytes that are no UTF-8 are replaced: two
paths that differ in nothing else become one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

#: What the types of Arrow are, more exactly than its stubs can say.
Column: TypeAlias = Any
Value: TypeAlias = Any

BLOCK_BYTES = 4_000_000

#: Settings of a user's own must not change what an export holds.
_LOG = (
    *("-c", "mailmap.file=", "-c", "log.showRoot=true", "-c", "log.showSignature=false"),
    *("log", "-z", "--encoding=UTF-8", "--no-color", "--no-notes", "--no-decorate"),
)
#: Emails and names as the mailmap has them, times in seconds.
_FIELDS = {
    **{"sha": "%H", "parents": "%P", "subject": "%s"},
    **{"author": "%aE", "author_name": "%aN", "authored_at": "%at"},
    **{"committer": "%cE", "committer_name": "%cN", "committed_at": "%ct"},
}
_COMMIT = "commit:"

_MOMENT = pa.timestamp("us", "UTC")
_AT = pa.field("exported_at", _MOMENT)


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([*(pa.field(name, kind) for name, kind in columns.items()), _AT])


_TEXT = pa.string()
COMMITS = _schema(sha=_TEXT, author=_TEXT, committer=_TEXT, subject=_TEXT, authored_at=_MOMENT, committed_at=_MOMENT)
PARENTS = _schema(sha=_TEXT, parent=_TEXT)
CHANGES = _schema(sha=_TEXT, path=_TEXT, additions=pa.int64(), deletions=pa.int64())
PEOPLE = _schema(email=_TEXT, name=_TEXT)
FILES = _schema(path=_TEXT, folder=_TEXT, gone=pa.bool_())


@dataclass(frozen=True)
class Exported:
    """Up to where. `basis` is a digest of what decides how all of history reads: the mailmap, and where a shallow clone
    ends. `whole` counts exports of everything, `part` those of what was new since.
    """

    tip: str
    basis: str
    whole: int
    part: int


@dataclass(frozen=True)
class Found:
    """What an export wrote. `tables` is the folder that has a folder for each table."""

    tables: Path
    whole: bool
    commits: int
    changes: int


def export(clone: Path, folder: Path) -> Found:
    """Bring the Parquet in `folder` up to what `clone` has. Interrupted, the next call does the same again."""
    git = Git(clone)
    before = _read(folder / "exported.json")
    tip, basis = git.text("rev-parse", "--verify", "HEAD^{commit}").strip(), git.basis()
    if before and (before.tip, before.basis) == (tip, basis):
        return Found(folder / str(before.whole), whole=False, commits=0, changes=0)
    if before and before.basis == basis and git.follows(before.tip, tip):
        now, commits = Exported(tip, basis, before.whole, before.part + 1), f"{before.tip}..{tip}"
    else:
        now, commits = Exported(tip, basis, before.whole + 1 if before else 1, 1), tip
    tables = folder / str(now.whole)
    if now.part == 1:
        shutil.rmtree(tables, ignore_errors=True)
    at = pa.scalar(time.time_ns() // 1_000_000 * 1_000, _MOMENT)
    written = _write(git, tables, now, commits, at)
    _replace(folder / "exported.json", lambda path: path.write_text(json.dumps(asdict(now)), encoding="utf-8"))
    if before and before.whole != now.whole:
        shutil.rmtree(folder / str(before.whole), ignore_errors=True)
    return Found(tables, now.part == 1, *written)


def _write(git: Git, tables: Path, now: Exported, commits: str, at: Value) -> tuple[int, int]:
    """All tables. Returns how many commits and changes."""
    seen = PEOPLE.empty_table()
    name = f"{now.part:06}.parquet"
    with (
        closing(Part(tables / "commits" / name, COMMITS, at)) as rows,
        closing(Part(tables / "parents" / name, PARENTS, at)) as parents,
        closing(Part(tables / "changes" / name, CHANGES, at)) as changes,
    ):
        for block in git.commits(commits):
            rows.write({**block, "author": _email(block, "author"), "committer": _email(block, "committer")})
            parents.write(_parents(block))
            seen = _first_names(pa.concat_tables([seen, _people(block, at)]))
        for block in git.changes(commits):
            changes.write(block)
        for each in (rows, parents, changes):
            each.finish()
    _update(tables / "people" / "all.parquet", lambda known: _with_people(known, seen), PEOPLE)
    _update(tables / "files" / "all.parquet", lambda known: _with_files(known, git.files(now.tip), at), FILES)
    return rows.rows, changes.rows


class Git:
    """What is asked of a clone."""

    def __init__(self, clone: Path) -> None:
        self._clone = clone

    def text(self, *arguments: str) -> str:
        return self._run(*arguments).decode(errors="replace")

    def follows(self, before: str, tip: str) -> bool:
        """Whether nothing was rewritten between the two."""
        command = ["git", "-C", str(self._clone), "merge-base", "--is-ancestor", before, tip]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def basis(self) -> str:
        """A digest; see `Exported`."""
        shallow = self._clone / self.text("rev-parse", "--git-path", "shallow").rstrip("\n")
        if self.text("rev-parse", "--is-bare-repository").strip() == "true":
            mailmap = self._run("cat-file", "--batch", stdin=b"HEAD:.mailmap\n")
        else:
            place = Path(self.text("rev-parse", "--show-toplevel").rstrip("\n")) / ".mailmap"
            mailmap = place.read_bytes() if place.is_file() else b""
        ends = shallow.read_bytes() if shallow.is_file() else b""
        return hashlib.sha256(b"\0".join([mailmap, ends])).hexdigest()

    def commits(self, which: str) -> Iterator[dict[str, Column]]:
        rest: Column = pa.array([], _TEXT)
        for tokens in self._tokens(*_LOG, f"--format={'%x00'.join(_FIELDS.values())}", which):
            known = pa.concat_arrays([rest, tokens])
            whole = len(known) - len(known) % len(_FIELDS)
            rest = known.slice(whole)
            block = {name: known.take(np.arange(at, whole, len(_FIELDS))) for at, name in enumerate(_FIELDS)}
            yield block | {name: _moments(block[name]) for name in ("authored_at", "committed_at")}

    def changes(self, which: str) -> Iterator[dict[str, Column]]:
        how = ("--no-merges", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-relative")
        current: Column = pa.array([], _TEXT)
        for found in self._tokens(*_LOG, *how, f"--format={_COMMIT}%H", which):
            # A block may begin within a commit. The first change of each has a line feed before it.
            tokens = pc.utf8_ltrim(pa.concat_arrays([current, found]), characters="\n")
            tokens = tokens.filter(pc.not_equal(tokens, pa.scalar("")))
            heads = pc.starts_with(tokens, _COMMIT)  # Nothing else does: a change begins with a number, or a dash.
            commits = tokens.filter(heads)
            current = commits.slice(len(commits) - 1)
            of = pa.array(np.cumsum(heads.to_numpy(zero_copy_only=False)) - 1).filter(pc.invert(heads))
            parts = pc.split_pattern(tokens.filter(pc.invert(heads)), "\t", max_splits=2)
            yield {
                "sha": pc.replace_substring(commits, _COMMIT, "", max_replacements=1).take(of),
                "path": pc.list_element(parts, 2),
                "additions": _numbers(pc.list_element(parts, 0)),
                "deletions": _numbers(pc.list_element(parts, 1)),
            }

    def files(self, tip: str) -> Column:
        """Paths that there are, each once."""
        found = list(self._tokens("ls-tree", "-r", "-z", "--full-tree", "--name-only", tip))
        return pc.unique(pa.concat_arrays([pa.array([], _TEXT), *found]))

    def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        command = ["git", "-C", str(self._clone), *arguments]
        done = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise SystemExit(f"git {arguments[0]} failed in {self._clone}")
        return done.stdout

    def _tokens(self, *arguments: str) -> Iterator[Column]:
        """What git prints, cut at each NUL, block by block."""
        rest = b""
        with subprocess.Popen(["git", "-C", str(self._clone), *arguments], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while block := process.stdout.read(BLOCK_BYTES):
                whole, nul, after = block.rpartition(b"\0")
                if not nul:
                    rest += block
                    continue
                text = (rest + whole).decode(errors="replace")
                rest = after
                yield pc.split_pattern(pa.array([text]), "\0").flatten()
        if process.returncode or rest:
            raise SystemExit(f"git {' '.join(arguments)} failed in {self._clone}")


class Part:
    """One file of a table, which appears when it is whole."""

    def __init__(self, path: Path, schema: pa.Schema, at: Value) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows = 0
        self._path, self._schema, self._at = path, schema, at
        self._hidden = path.with_name(f".{path.name}")
        self._writer = pq.ParquetWriter(self._hidden, schema, compression="zstd")

    def write(self, columns: dict[str, Column]) -> None:
        number = len(columns["sha"])
        found = {**columns, "exported_at": pa.repeat(self._at, number)}
        self._writer.write_table(pa.table([found[name] for name in self._schema.names], schema=self._schema))
        self.rows += number

    def close(self) -> None:
        self._writer.close()

    def finish(self) -> None:
        self.close()
        self._hidden.replace(self._path)


def _moments(seconds: Column) -> Column:
    """Null for what is no moment of this age: there are commits with such dates."""
    found = pc.if_else(pc.match_substring_regex(seconds, r"^-?\d{1,11}$"), seconds, None).cast(pa.int64())
    return found.cast(pa.timestamp("s", "UTC")).cast(_MOMENT)


def _numbers(text: Column) -> Column:
    """Null for binary files."""
    return pc.if_else(pc.equal(text, pa.scalar("-")), None, text).cast(pa.int64())


def _email(block: dict[str, Column], who: str) -> Column:
    return pc.utf8_lower(pc.utf8_trim_whitespace(block[who]))


def _parents(block: dict[str, Column]) -> dict[str, Column]:
    lists = pc.split_pattern(block["parents"], " ")
    found = {"sha": block["sha"].take(pc.list_parent_indices(lists)), "parent": lists.flatten()}
    there = pc.not_equal(found["parent"], pa.scalar(""))
    return {name: each.filter(there) for name, each in found.items()}


def _people(block: dict[str, Column], at: Value) -> pa.Table:
    """Of each commit its author, then its committer."""
    number = len(block["sha"])
    turns = np.arange(2 * number).reshape(2, number).T.ravel()
    emails = pa.concat_arrays([_email(block, "author"), _email(block, "committer")])
    names = pa.concat_arrays([block["author_name"], block["committer_name"]])
    return pa.table([emails.take(turns), names.take(turns), pa.repeat(at, 2 * number)], schema=PEOPLE)


def _first_names(people: pa.Table) -> pa.Table:
    """One row for each person. The log begins with the newest commit, so the first name is the latest."""
    found = people.group_by("email", use_threads=False).aggregate([("name", "first"), ("exported_at", "first")])
    return found.rename_columns([name.removesuffix("_first") for name in found.column_names]).select(PEOPLE.names)


def _with_people(known: pa.Table, seen: pa.Table) -> pa.Table:
    """Who is new or called otherwise now has the time of this export; all others keep theirs."""
    index = pc.index_in(seen["email"], value_set=known["email"].combine_chunks())
    before: dict[str, Column] = {name: known[name].take(index) for name in ("name", "exported_at")}
    same: Column = pc.equal(before["name"], seen["name"])
    at: Column = seen["exported_at"]
    now = seen.set_column(2, _AT, pc.if_else(pc.fill_null(same, False), before["exported_at"], at))
    return _first_names(pa.concat_tables([now, known]))


def _with_files(known: pa.Table, paths: Column, at: Value) -> pa.Table:
    """Files that appeared or went have the time of this export; all others keep theirs."""
    there = pc.is_in(known["path"], value_set=paths)
    differs = pc.equal(there, known["gone"])
    kept = known.set_column(2, "gone", pc.invert(there))
    kept = kept.set_column(3, _AT, pc.if_else(differs, at, known["exported_at"]))
    added = paths.filter(pc.invert(pc.is_in(paths, value_set=known["path"].combine_chunks())))
    folder = pc.replace_substring_regex(added, r"(?s)/?[^/]*$", "")
    number = len(added)
    new = [added, folder, pa.repeat(pa.scalar(False), number), pa.repeat(at, number)]
    return pa.concat_tables([kept.cast(FILES), pa.table(new, schema=FILES)])


def _update(path: Path, change: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> None:
    known = pq.read_table(path, schema=schema) if path.exists() else schema.empty_table()
    found = change(known)
    _replace(path, lambda hidden: pq.write_table(found, hidden, compression="zstd"))


def _replace(path: Path, write: Callable[[Path], Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    write(hidden)
    hidden.replace(path)


def _read(path: Path) -> Exported | None:
    return Exported(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

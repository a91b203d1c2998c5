"""Fingerprints of what turns a source into rows, and the revision of a project."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from instep.domain.document_columns import DeclaredColumn
from instep.domain.fingerprint import WORDS, column_fingerprint, column_part, digest
from instep.domain.words import SEARCHED_BY_DEFAULT, Searched
from instep.pipeline.code_fingerprint import loaded_fingerprint
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.embed.embedder import Embedder
from instep.pipeline.loading import load_transform

#: `targets.document_target.row_schema` in words, so that asking for the fingerprint needs no Arrow.
ROWS = (
    "document_id:string document_hash:string source_uri:string source_version:string chunk_id:string "
    "chunk_hash:string chunk_index:int32 title:string? text:string vector:float32[] _searched:string "
    "modified:timestamp[us, tz=UTC]? _ref:string _instance:string _version:int64"
)
#: What is done with the columns, as far as an index that was made in another way would not do it. A chunk's hash is of
#: its title and its text, and words of both are found; its id is of its text.
RULES = "titles-2"


def fingerprint(
    *,
    chunker: Chunker,
    embedder: Embedder,
    transform: str | None = None,
    columns: Sequence[DeclaredColumn] = (),
    parser: str,
    searched: Searched = SEARCHED_BY_DEFAULT,
) -> dict[str, str]:
    """Part → fingerprint: parser, chunker, embedder, schema, words, each declared
    column and, if there is one, transform.
    """
    parts = {
        "parser": parser,
        "chunker": chunker.fingerprint,
        "embedder": embedder.fingerprint,
        "schema": digest([ROWS, RULES, embedder.dimensions]),
        WORDS: searched.fingerprint,
    }
    for each in columns:
        parts[column_part(each.name)] = column_fingerprint(each.column.type, each.origin, each.of, each.lenient)
    if transform is not None:
        parts["transform"] = loaded_fingerprint(transform, load_transform(transform))
    return parts


_SECONDS = 5.0


def revision_of(folder: Path) -> str:
    """The commit that is checked out in this folder's git repository, with `+` for changes since; '' without one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return ""
    return commit + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".") else "")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - git is found in the PATH, as for any user; what it is told is fixed here
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""

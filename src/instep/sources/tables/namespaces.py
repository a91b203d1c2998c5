"""Conditions that select the rows of namespaces, by a column of traversal paths."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.refs import Scope


def within(paths: pa.Array[Any], scopes: Iterable[Scope]) -> pa.Array[Any]:
    """Whether each path is in one of the namespaces; a null is in none. However many there are, all namespaces of one
    depth are looked up together.
    """
    found: pa.Array[Any] = pa.repeat(pa.scalar(False), len(paths))
    for depth, same in groupby(sorted(scopes, key=_depth), key=_depth):
        heads: Any = pc.replace_substring_regex(paths, rf"(?s)^((?:[^/]*/){{{depth}}}).*$", r"\1")
        found = pc.or_(found, pc.is_in(heads, pa.array([each.path for each in same], pa.string())))
    return found


def _depth(scope: Scope) -> int:
    return scope.path.count("/")

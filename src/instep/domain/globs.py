"""Globs as in `.gitignore`, each as a regular expression."""

from __future__ import annotations

import re
from typing import Final

SUFFIX: Final = re.compile(r"(?:\*\*/)?\*(\.[A-Za-z0-9_.+-]+)\Z")
_FOLDER: Final = re.compile(r"([A-Za-z0-9_.+-]+)/\Z")

#: What `pathspec` makes of them: most projects have no other patterns, and need not import it. A key of an object
#: store may begin with a slash below its prefix.
_WITH_SUFFIX: Final = "^(?:.*/)?[^/]*{}(?:(?:/)|$)"
_IN_FOLDER: Final = "^(?:.+/)?{}(?:/)"

#: A pattern in which nothing can be wrong: without brackets and backslashes, and of more than marks.
_SOUND: Final = re.compile(r"[^\[\\]*[^!/\[\\][^\[\\]*\Z")


class GlobError(ValueError):
    """A pattern that means nothing."""

    hint: Final = "Write it as in .gitignore, such as **/*.md or drafts/"

    def __init__(self, pattern: str) -> None:
        super().__init__(f"{pattern!r} is not a glob")


def demand_glob(pattern: str) -> None:
    """Raises `GlobError` for a pattern that means nothing."""
    if not _SOUND.match(pattern):
        rule_of(pattern)


def rule_of(pattern: str) -> tuple[str, bool] | None:
    """The pattern as a regular expression, and whether it adds or takes back; None for a comment.

    Raises `GlobError`.
    """
    for kind, simple in ((SUFFIX, _WITH_SUFFIX), (_FOLDER, _IN_FOLDER)):
        if found := kind.match(pattern):
            return simple.format(re.escape(found[1])), True

    from pathspec.patterns.gitignore.base import GitIgnorePatternError
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    try:
        expression, wanted = GitIgnoreSpecPattern.pattern_to_regex(pattern)
    except GitIgnorePatternError:
        expression = wanted = None
    if expression is None or wanted is None:
        if not pattern.strip() or pattern.startswith("#"):
            return None
        raise GlobError(pattern)
    rule = re.sub(r"\(\?P<\w+>", "(?:", expression)
    try:
        re.compile(rule)
    except re.error:  # A range that ends before it begins, such as [z-a].
        raise GlobError(pattern) from None
    return rule, wanted

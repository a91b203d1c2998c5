"""Globs of paths as in `.gitignore`: which files a source includes and excludes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from instep.domain.globs import SUFFIX, GlobError, rule_of
from instep.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

_FILES = re.compile(r"[*?\]][^/]*\.[^./*?\[\]]+\Z")


class Globs:
    """Patterns over paths relative to a root, with `/` between names.

    `**/*.md` and `*.md` match at any depth, `docs/` everything below it, `!draft.md` takes back what
    an earlier pattern matched. With `of_files`, what ends in a wildcard with an extension (`*.js`) is said of files,
    and not of all that is in a folder which is called so. Raises `UserError` for a pattern that means nothing.
    """

    def __init__(self, patterns: Sequence[str], *, of_files: bool = False) -> None:
        try:
            found = [(each, rule_of(each)) for each in patterns]
        except GlobError as error:
            raise UserError(str(error), hint=error.hint) from None
        rules = [rule for _, rule in found if rule]
        if of_files:
            named = [_FILES.search(each) is not None for each, rule in found if rule]
            rules = [
                (expression.removesuffix("(?:(?:/)|$)") + "$" if files else expression, wanted)
                for (expression, wanted), files in zip(rules, named, strict=True)
            ]
        self.negated = not all(wanted for _, wanted in rules)
        #: They only match what is in a folder whose path, with a slash behind it, they match as well.
        self.of_folders = not self.negated and all(expression.endswith("(?:/)") for expression, _ in rules)
        suffixes = [suffix[1] for suffix in map(SUFFIX.match, patterns) if suffix]
        self._suffixes = () if self.negated else tuple(suffixes)
        self._runs = [
            (wanted, "|".join(f"(?:{expression})" for expression, _ in run))
            for wanted, run in groupby(rules, key=lambda rule: rule[1])
        ]
        groups: list[tuple[bool, Callable[[str], object]]] = [
            (wanted, re.compile(expression).match) for wanted, expression in self._runs
        ]
        # The last one that matches decides, so they are asked from the last to the first.
        self._groups = groups[::-1]

    def __bool__(self) -> bool:
        return bool(self._groups)

    def matches(self, relative: str) -> bool:
        if self._suffixes and relative.endswith(self._suffixes):
            return True
        for wanted, match in self._groups:
            if match(relative):
                return wanted
        return False

    def match_all(self, paths: pa.Array[Any]) -> Any:
        """Whether each of many paths matches, as `matches` has it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found: Any = pa.repeat(False, len(paths))
        for wanted, expression in self._runs:
            matched = pc.match_substring_regex(paths, f"^(?:{expression})")
            found = pc.or_(found, matched) if wanted else pc.and_not(found, matched)
        # Only to Python an end of a line at the end of a text is its end.
        odd = pc.match_substring(paths, "\n")
        if pc.any(odd).as_py():
            told = [self.matches(str(each)) for each in paths.filter(odd).to_pylist()]
            found = pc.replace_with_mask(found, odd, pa.array(told, pa.bool_()))
        return found

    def leave_out(self, relative: str) -> bool:
        """Whether an `exclude` of these leaves out a file, for itself or with a folder that it is in."""
        steps = relative.split("/")
        folders = ("/".join(steps[:end]) + "/" for end in range(1, len(steps)))
        return self.matches(relative) or any(map(self.matches, folders))

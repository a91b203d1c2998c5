"""The project's configuration as it is in effect, defaults included, without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import Field

from instep.answers.answer import Answer
from instep.domain.texts import redacted
from instep.project import Project
from instep.project.load import environment_used

#: Shown for what must not be.
MASK: Final = "***"
NOTHING: Final = "-"
#: What pydantic makes of a secret.
_HIDDEN: Final = "**********"
_SECRET_NAME = re.compile(
    r"(?i)passw|pwd|secret|token(?!i)|credential|authorization|signature|passphrase|cookie|"
    r"(?<![a-z])sas(?![a-z])|(api|access|account|private|shared|storage|sas|encryption)[-_. ]?key"
)
#: Behind such a scheme may stand a path of this machine or a bucket: options of servers are cut off.
_OPTIONS = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s?#]+)[?#]\S*", re.IGNORECASE)
#: A shorter value of the environment is only found where it is all of a text.
_SHORTEST: Final = 4


class Setting(Answer):
    """One setting; `value` is text, and stars for a secret."""

    path: str = Field(description="Names with dots, as `targets.index.uri`.")
    value: str
    declared: bool = Field(description="False of a default.")


def configuration(project: Project, environment: Mapping[str, str] | None = None) -> list[Setting]:
    """All settings in their order. What came from the environment is shown as `${NAME}`."""
    used = environment_used(project, os.environ if environment is None else environment)
    every = project.model_dump(mode="json", by_alias=True, exclude={"root"})
    declared = {path for path, _ in _leaves(project.model_dump(mode="json", by_alias=True, exclude_unset=True), ())}
    return [
        Setting(path=".".join(path), value=_shown(path, value, used), declared=path in declared)
        for path, value in _leaves(every, ())
    ]


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping) and value:
        for name, each in value.items():
            yield from _leaves(each, (*path, str(name)))
    elif isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(e, Mapping) for e in value):
        for place, each in enumerate(value):
            yield from _leaves(each, (*path, str(place)))
    else:
        yield path, value


def _shown(path: Sequence[str], value: Any, used: Mapping[str, str]) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_shown(path, each, used) for each in value) or NOTHING
    if isinstance(value, str):
        return _without_secrets(path, value, used)
    if value is None or isinstance(value, Mapping):
        return NOTHING
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _without_secrets(path: Sequence[str], value: str, used: Mapping[str, str]) -> str:
    if value == _HIDDEN or any(map(_SECRET_NAME.search, path)):
        return MASK
    for name, given in sorted(used.items(), key=lambda each: -len(each[1])):
        if given and (value == given or (len(given) >= _SHORTEST and given in value)):
            value = value.replace(given, f"${{{name}}}")
    return redacted(_OPTIONS.sub(r"\1", value))

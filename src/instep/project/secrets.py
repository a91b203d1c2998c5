"""The secrets of a project, by their values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, Secret, SecretStr

#: Names of options whose values are secrets, wherever they come from; else an option may as well be a table's name.
_NAMED: Final = re.compile(r"(?i)secret|passw|token|credential|key")


def secrets_of(project: BaseModel, given: Collection[str] = ()) -> set[str]:
    """Values of settings that are secrets; of options those with such a name, or whose value was `given` by the
    environment.
    """
    return set(_secrets(project, given))


def _secrets(value: Any, given: Collection[str], *, named: bool = True) -> Iterator[str]:
    if isinstance(value, BaseModel):
        for each in type(value).model_fields:
            yield from _secrets(getattr(value, each), given)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _secrets(each, given, named=_NAMED.search(str(key)) is not None)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _secrets(each, given, named=named)
    elif isinstance(value, Secret | SecretStr):
        hidden = value.get_secret_value()
        if isinstance(hidden, str) and (named or hidden in given):
            yield hidden

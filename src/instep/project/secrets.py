"""The secrets of a project, by their values."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, Secret, SecretStr

from instep.project.models import Project

#: Names of options whose values are secrets, wherever they come from; else an option may as well be a table's name.
_NAMED: Final = re.compile(r"(?i)secret|passw|pwd|token|credential|key|signature|\bsas\b|\bsig\b")
#: What stands before a key in a header.
_SCHEME: Final = re.compile(r"(?i)(?:bearer|basic|token|apikey)\s+(\S+)")
#: Of an address the password, a token in the place of user and password, and parameters with such a name.
_PASSWORD: Final = re.compile(r"://[^\s/?#:@]*:([^\s/?#]+)@")
_TOKEN: Final = re.compile(r"\b(?:https?|nats|tls)://([^\s/?#:@]+)@")
_PARAMETER: Final = re.compile(r"[?&;]([^\s=?&;]+)=([^\s&;#]+)")


def secrets_of(project: Project, given: Collection[str] = ()) -> set[str]:
    """Values of settings that are secrets; of options and settings of Spark those with such a name, and of options
    those whose value was `given` by the environment. With each the parts of it that are secrets by themselves: what was
    `given`, the key behind `Bearer`, values of JSON, passwords of addresses; the latter of all settings.
    """
    spark = (value for name, value in project.spark.config.items() if _NAMED.search(name))
    whole = {*_secrets(project, given), *spark}
    parts = {part for value in whole for part in _parts(value, given)}
    return whole | parts | {part for value in _texts(project) for part in _of_address(value)}


def plain_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options without those named as secrets are, and without secrets in addresses and in JSON."""
    found = {}
    for name, value in options.items():
        if _NAMED.search(name):
            continue
        for each in (*_of_address(value), *_of_json(value)):
            value = value.replace(each, "")  # noqa: PLW2901 - one after the other
        found[name] = value
    return found


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
        if isinstance(hidden, str):
            if named or hidden in given:
                yield hidden
            else:
                yield from _of_json(hidden)


def _texts(value: Any) -> Iterator[str]:
    """All texts of settings, secret or not."""
    if isinstance(value, BaseModel):
        for each in type(value).model_fields:
            yield from _texts(getattr(value, each))
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, Secret | SecretStr):
        yield str(value.get_secret_value())


def _parts(value: str, given: Collection[str]) -> Iterator[str]:
    if "://" not in value:  # Of an address, host and user are none.
        yield from (each for each in given if each and each in value)
    if found := _SCHEME.fullmatch(value.strip()):
        yield found[1]
    yield from _of_json(value)


def _of_json(value: str) -> Iterator[str]:
    """Texts in an object of JSON under names of secrets: a key of a service account, say."""
    if value.lstrip().startswith("{"):
        try:
            yield from _named(json.loads(value))
        except (ValueError, RecursionError):
            return


def _named(value: Any, *, named: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _named(each, named=_NAMED.search(name) is not None)
    elif isinstance(value, list):
        for each in value:
            yield from _named(each, named=named)
    elif named and isinstance(value, str):
        yield value
        yield from (line for line in value.splitlines() if line != value)


def _of_address(value: str) -> Iterator[str]:
    if "://" in value or value.startswith("jdbc:"):
        yield from (*_PASSWORD.findall(value), *_TOKEN.findall(value))
        yield from (found for name, found in _PARAMETER.findall(value) if _NAMED.search(name))

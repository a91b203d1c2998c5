"""Import code of users by name: `package.module:name`, or the name of an entry point that an installed package has."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from instep.errors import UserError
from instep.own_faults import is_stop, note_code
from instep.own_source import note_imports

#: Groups of entry points by the first word of the setting that names one.
GROUPS: Final[Mapping[str, str]] = {
    "source": "instep.sources",
    "parse": "instep.parsers",
    "chunk": "instep.chunkers",
    "embed": "instep.embedders",
    "search": "instep.rerankers",
    "targets": "instep.targets",
}


def load_transform(name: str) -> Any:
    """The transform behind `package.module:function`. Raises `UserError`."""
    return load_function(name, "transform")


def load_function(name: str, setting: str) -> Any:
    """The function behind `package.module:function`, which a setting names. Raises `UserError`."""
    return _load(name, setting, "function")


def load_class(name: str, setting: str) -> Any:
    """The class behind `package.module:Class`, which a setting names. Raises `UserError`."""
    return _load(name, setting, "class")


def full_name(name: str, setting: str) -> str:
    """The `package.module:name` that is meant: by a name without a colon, the entry point of an installed package.
    Raises `UserError` if there is none, or more than one.
    """
    if ":" in name:
        return name
    group = GROUPS[setting.partition(".")[0]]
    found = entry_points(group=group)
    values = sorted({each.value for each in found if each.name == name})
    if not values:
        known = ", ".join(sorted({each.name for each in found})) or "there are none"
        raise UserError(
            f"no installed package has {name!r} among its entry points of {group}",
            where=setting,
            hint=f"Install the package, or write package.module:name. Known: {known}.",
        )
    if len(values) > 1:
        raise UserError(
            f"several installed packages have {name!r} among their entry points of {group}",
            where=setting,
            hint=f"Write the one that is meant: {' or '.join(values)}.",
        )
    return values[0]


def meant_by(name: str) -> list[str]:
    """List each `package.module:name` that a name may stand for: one without a colon, for the entry points of all
    groups.
    """
    if ":" in name:
        return [name]
    return sorted({each.value for group in GROUPS.values() for each in entry_points(group=group, name=name)})


def _load(name: str, setting: str, kind: str) -> Any:
    module_name, _, attribute = name.partition(":")
    note_imports()
    note_code(module_name)
    works = f"This has to work: python -c 'import {module_name}'"
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        itself = f"{module_name}.".startswith(f"{error.name}.")
        raise UserError(
            f"{setting} {name} cannot be imported: {error}",
            hint="Its module must be in the project's folder, installed, or on PYTHONPATH." if itself else works,
        ) from error
    except BaseException as error:
        if is_stop(error):
            raise
        # A script that is not meant to be imported may end the process, and no run would have been heard of.
        raise UserError(
            f"{setting} {name} cannot be imported: {type(error).__name__}: {str(error)[:300]}",
            hint=works,
        ) from error
    found = getattr(module, attribute, None)
    if not (isinstance(found, type) if kind == "class" else callable(found)):
        raise UserError(f"{module_name} has no {kind} {attribute!r}", hint=f"Check `{setting}` in instep.yaml.")
    return found

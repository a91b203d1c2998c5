"""The file in which a plan is saved: which project, which options, and the digest of each part."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep import __version__
from instep.errors import UserError

if TYPE_CHECKING:
    from instep.planning.plan import EntityPlan
    from instep.project import Project

_FORMAT = "instep-plan-1"


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """`digests` by reference; the options are those the plan was made with."""

    root: Path
    digests: dict[str, str]
    full_refresh: bool
    retry_failures: bool
    allow_deletes: bool
    allow_empty: bool
    generation: str | None

    @property
    def entities(self) -> list[str]:
        return [ref.partition("@")[0] for ref in self.digests]


def write_plan(
    file: Path,
    project: Project,
    plans: Sequence[EntityPlan],
    *,
    full_refresh: bool,
    retry_failures: bool,
    allow_deletes: bool,
    allow_empty: bool,
    generation: str | None,
) -> None:
    value: dict[str, Any] = {
        "format": _FORMAT,
        "instep": __version__,
        "root": str(project.root),
        "options": {
            "full_refresh": full_refresh,
            "retry_failures": retry_failures,
            "allow_deletes": allow_deletes,
            "allow_empty": allow_empty,
            "generation": generation,
        },
        "plans": [each.as_dict(explain=True) for each in plans if each.problem is None],
    }
    try:
        file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(file)) from None


def read_plan(file: Path) -> SavedPlan:
    hint = "Save one with: instep plan -o plan.json"
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(file), hint=hint) from None
    except ValueError:
        raise UserError("is no saved plan: not JSON", where=str(file), hint=hint) from None
    try:
        if value["format"] != _FORMAT:
            raise UserError(f"is a plan of another format ({value['format']!r})", where=str(file), hint=hint)
        options = value["options"]
        return SavedPlan(
            root=Path(value["root"]),
            digests={str(each["ref"]): str(each["digest"]) for each in value["plans"]},
            full_refresh=bool(options["full_refresh"]),
            retry_failures=bool(options["retry_failures"]),
            allow_deletes=bool(options["allow_deletes"]),
            allow_empty=bool(options.get("allow_empty", False)),
            generation=options.get("generation"),
        )
    except (KeyError, TypeError):
        raise UserError("is no saved plan, or was changed", where=str(file), hint=hint) from None

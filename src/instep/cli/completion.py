"""Complete names in a shell: those that the project file declares."""

from __future__ import annotations

import typer

from instep.errors import InstepError


def entity_names(context: typer.Context, incomplete: str) -> list[str]:
    """Entities that begin like this; none where there is no project to read: a shell is no place for errors."""
    from instep.project import load_project

    try:
        names = load_project(context.params.get("project")).entities
    except InstepError:
        return []
    return [name for name in names if name.startswith(incomplete)]

"""Whole numbers as callers of the Python API give them."""

from __future__ import annotations

from instep.errors import UserError


def demand_whole(**values: object) -> None:
    """Raises `UserError` for an argument that is no whole number, such as one that was read from a form."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise UserError(f"{name} is {value!r}", hint=f"Allowed: a whole number, such as {name}=10.")

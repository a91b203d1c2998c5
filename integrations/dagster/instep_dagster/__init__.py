"""Instep in Dagster: a component that makes an asset of each entity of a project."""

from __future__ import annotations

from instep_dagster.component import InstepProject

__all__ = ["InstepProject"]

"""Aliases and views of tables that somebody dropped are made again, though no row has changed."""

from __future__ import annotations

import uuid
from pathlib import Path

import psycopg
import pytest

from instep.domain.jobs import JobState
from tests.servers.postgres import running_postgres

from .quick import QuickShop


def filled(root: Path, target: str) -> QuickShop:
    shop = QuickShop(root, target)
    shop.declare()
    shop.fill(people=5, tickets=40)
    shop.run()
    return shop


def read_again(shop: QuickShop) -> dict[str, int]:
    """Rows that a run has read, by partition."""
    results = shop.run()
    assert {each.state for each in results.values()} <= {None, JobState.COMPLETED}
    return {name: each.counts.read for name, each in results.items() if each.counts.read}


def test_files_of_aliases_are_made_again(tmp_path: Path) -> None:
    shop = filled(tmp_path / "shop", "type: lance, uri: index")
    for alias in (shop.root / "index").glob("*.alias-*.json"):
        alias.unlink()
    assert read_again(shop) == {}
    assert shop.wrong() == {}


def test_what_is_served_again_is_complete_up_to_where_it_was(tmp_path: Path) -> None:
    """A run up to a moment that has passed reads nothing: what came since is not known."""
    shop = filled(tmp_path / "shop", "type: lance, uri: index")
    shop.put("likes", person=3, ticket=1)
    shop.save()
    before = shop.checkpoint("Like@global")
    for alias in (shop.root / "index").glob("Like.alias-*.json"):
        alias.unlink()
    assert shop.run("Like", watermark=1)["Like"].state is JobState.COMPLETED
    assert shop.checkpoint("Like@global") == before
    shop.run()
    assert shop.wrong() == {}


@pytest.mark.proof
def test_views_are_made_again(tmp_path: Path) -> None:
    """Those of a table, and those that namespaces share."""
    server, database = running_postgres(), f"shop_{uuid.uuid4().hex[:8]}"
    server.execute(f"CREATE DATABASE {database}")
    shop = filled(tmp_path / "shop", f"type: postgres, uri: '{server.url(database)}'")
    views = "SELECT quote_ident(schemaname) || '.' || quote_ident(viewname), definition FROM pg_views WHERE {}"

    def shown() -> dict[str, str]:
        with psycopg.connect(server.url(database)) as client:
            ours = views.format("viewname ~ '^(Person|Ticket|Like)(__|$)'")
            return dict(client.execute(ours.encode()).fetchall())

    before = shown()
    assert len(before) == 5
    with psycopg.connect(server.url(database)) as client:
        for view in before:
            client.execute(f"DROP VIEW {view}".encode())
    assert read_again(shop) == {}
    assert shown() == before
    assert shop.wrong() == {}

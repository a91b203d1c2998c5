"""The bus, namespaces, attempts and groups, as a project declares them."""

from __future__ import annotations

import pytest

from instep.domain.refs import PartitionRef, Scope
from instep.domain.requests import Group, Kind
from instep.domain.wants import Retries
from instep.project.models import group_of, retries_of

from .conftest import BASE, Load, Reject
from .declared import said

USER, ISSUE = PartitionRef("User"), PartitionRef.parse("Issue@42/9970")


def test_requests_are_kept_in_the_ledger_unless_a_bus_is_named(load: Load) -> None:
    assert load(BASE).bus is None
    named = load("bus: tls://ann:${PASSWORD}@one,two:4223/shop\n" + BASE, {"PASSWORD": "hunter2"})
    assert named.bus == "tls://ann:hunter2@one,two:4223/shop"
    assert "hunter2" not in repr(named)


def test_namespaces_are_kept_in_one_form(load: Load) -> None:
    project = load('namespaces: [42/9970/, "42/9971", 7]\n' + BASE)
    assert project.namespaces == ("42/9970", "42/9971", "7")
    assert project.scopes == tuple(map(Scope.parse, ("42/9970", "42/9971", "7")))


def test_policies_have_the_defaults_of_the_domain(load: Load) -> None:
    project = load("handlers: {namespace: {}}\n" + BASE)
    assert retries_of(project, USER) == retries_of(project, ISSUE) == Retries()
    assert group_of(project, USER) is None


def test_each_kind_of_request_has_its_policy(load: Load) -> None:
    heavy = "{max_attempts: 2, backoff: [0s, 1m], group: heavy, limit: 3}"
    project = load(f"handlers:\n  global: {heavy}\n  namespace: {{backoff: [1h]}}\n{BASE}")
    assert retries_of(project, USER) == Retries(2, (0, 60_000))
    assert group_of(project, USER) == Group("heavy", 3, frozenset({Kind.GLOBAL}))
    assert (retries_of(project, ISSUE), group_of(project, ISSUE)) == (Retries(backoff=(3_600_000,)), None)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("bus: nast://ann:hunter2@h", "1 bus: must look like nats://user:password@host:4222/prefix"),
        ("bus: nats://ann:hunter2@h?tls_ca=x", "1 bus: has options for TLS, but does not begin with tls://"),
        ("bus: nats://ann:${SECRET}@h:x", "found (not shown)"),
        ("bus: 5", "1 bus: must be text (put it in quotes); found (not shown)"),
        ("namespaces: [42, 42/9970]", "1 namespaces[1]: one namespace is inside another"),
        ("namespaces: [42/9970, 42]", "1 namespaces[1]: one namespace is inside another"),
        ("namespaces: [42/1, 42/1/]", "1 namespaces[1]: is named twice"),
        ("namespaces: [global]", "1 namespaces[0]: must be a traversal path such as 42/9970, not `global`"),
        ("namespaces: [a/b]", "1 namespaces[0]: must be a traversal path such as 42/9970; found 'a/b'"),
        ("namespaces: [true]", "1 namespaces[0]: must be text"),
        ("namespaces: [-1]", "1 namespaces[0]: must be a traversal path"),
        ("namespaces: 42", "1 namespaces: must be a list; found 42"),
        ("handlers: {glbal: {}}", "handlers.glbal: unknown key (did you mean global?); allowed: global, namespace"),
        ("handlers: {global: {limt: 2}}", "handlers.global.limt: unknown key (did you mean limit?); allowed: max_att"),
        ("handlers: {global: {limit: 2}}", "1 handlers.global.group: is missing: `group` and `limit` go together"),
        ("handlers: {global: {group: x}}", "1 handlers.global.limit: is missing: `group` and `limit` go together"),
        ("handlers: {global: {group: a b, limit: 1}}", "1 handlers.global.group: the name of a group is letters"),
        ("handlers: {global: {group: a, limit: 0}}", "1 handlers.global.limit: must be at least 1"),
        ("handlers: {global: {backoff: []}}", "1 handlers.global.backoff: must not be empty"),
        ("handlers: {global: {backoff: [5]}}", "1 handlers.global.backoff[0]: must be a duration"),
        (
            "handlers: {global: {ack_wait: 5m}}",
            "1 handlers.global.ack_wait: is no longer used: the heartbeats",
        ),
        ("handlers: {global: {max_attempts: 0}}", "1 handlers.global.max_attempts: must be at least 1"),
        ("handlers: {global: 5}", "1 handlers.global: must be a mapping"),
    ],
)
def test_invalid_declarations_are_refused(reject: Reject, line: str, says: str) -> None:
    assert says in said(reject, "name: git", f"{line}\nname: git")


def test_neighbours_that_begin_alike_are_not_nested(load: Load) -> None:
    assert load("namespaces: [42/99, 42/997, 4]\n" + BASE).namespaces == ("42/99", "42/997", "4")

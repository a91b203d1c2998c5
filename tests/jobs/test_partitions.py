"""Which partitions a project has, as users name them, and what each is made from."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from instep.domain.refs import PartitionRef
from instep.entities.partitions import all_refs, all_upstream_refs, declared_ref, declared_refs, upstream_refs
from instep.errors import UserError
from instep.project import Project

SOURCE = {"type": "spark", "path": "x"}


def project(namespaces: Sequence[str] = ("42/9970", "7")) -> Project:
    return Project.model_validate(
        {
            "name": "p",
            "namespaces": namespaces,
            "targets": {"index": {"type": "lance", "uri": "x"}},
            "entities": {
                "Issue": {"source": SOURCE, "key": "id", "scope": "path", "depends_on": ["Group", "User", "Group"]},
                "Group": {"source": SOURCE, "key": "id", "scope": "path", "depends_on": ["Site", "User"]},
                "User": {"source": SOURCE, "key": "id", "depends_on": ["Site"]},
                "Site": {"source": {"type": "files", "path": "docs"}},
            },
        }
    )


def texts(refs: Sequence[PartitionRef]) -> list[str]:
    return [str(ref) for ref in refs]


def test_an_entity_has_one_partition_or_one_for_each_namespace() -> None:
    namespaced = ["Issue@42/9970", "Issue@7", "Group@42/9970", "Group@7"]
    assert texts(all_refs(project())) == [*namespaced, "User@global", "Site@global"]
    assert texts(all_refs(project(()))) == ["User@global", "Site@global"]


def test_partitions_are_named_with_or_without_their_scope() -> None:
    assert texts(declared_refs(["User", "User@global", "Issue"], project())) == [
        *("User@global", "Issue@42/9970", "Issue@7")
    ]
    # A namespace need not be declared.
    assert str(declared_ref("Issue@8", project())) == "Issue@8"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Usr", "no entity is named 'Usr'"),
        ("User@42", "User@42 is not indexed by itself"),
        ("Issue@global", "Issue is not indexed as a whole"),
        ("Issue", "'Issue' is 2 partitions"),
        ("@", "is not a reference"),
    ],
)
def test_an_invalid_partition_is_refused(name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        declared_ref(name, project())


def test_without_namespaces_an_entity_that_has_them_names_nothing() -> None:
    with pytest.raises(UserError, match="is indexed by namespaces, and none is declared"):
        declared_refs(["Issue"], project(()))


def test_a_namespace_depends_on_the_same_namespace_and_on_global_entities() -> None:
    issue, user = PartitionRef.parse("Issue@42/9970"), PartitionRef.parse("User")
    assert texts(upstream_refs(project(), issue)) == ["Group@42/9970", "User@global"]
    assert texts(upstream_refs(project(), user)) == ["Site@global"]


def test_a_shared_upstream_comes_once_nearest_first() -> None:
    refs = declared_refs(["Issue"], project())
    assert texts(all_upstream_refs(project(), refs[:1])) == ["Group@42/9970", "User@global", "Site@global"]
    assert texts(all_upstream_refs(project(), refs)) == ["Group@42/9970", "User@global", "Group@7", "Site@global"]
    both = declared_refs(["User", "Group@7"], project())
    assert texts(all_upstream_refs(project(), both)) == ["Site@global"]
    assert all_upstream_refs(project(), declared_refs(["Site"], project())) == []

"""A first build on a cluster that wrote nothing, or in which everything failed: never served, and no want has it."""

from __future__ import annotations

import json

import pytest

from tests.e2e.cluster.hosts import Hosts, instep

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.proof]

_PAPERS = """  Paper:
    source: {{type: files, path: "{docs}", include: ["**/*.pdf"]}}
    target: index
"""


def test_a_first_build_that_wrote_nothing_is_not_served_and_fulfils_no_want(hosts: Hosts) -> None:
    docs = hosts.shared / "nothing-docs"
    docs.mkdir()
    for number in range(6):
        (docs / f"{number}.md").write_text("\n")  # There is nothing in it,
        (docs / f"{number}.pdf").write_text("not what its name says")  # and this cannot be read.
    folder = hosts.declare("nothing", docs, entity="target: index")
    file = folder / "instep.yaml"
    file.write_text(file.read_text() + _PAPERS.format(docs=docs))
    assert instep(folder, "want").returncode == 0
    worked = instep(folder, "worker", "--until-idle")
    said = worked.stdout + worked.stderr
    assert worked.returncode == 0, said
    wants = json.loads(instep(folder, "wants", "--all", "--json").stdout)
    assert {each["refs"][0]: each["state"] for each in wants} == {"Document@global": "Failed", "Paper@global": "Failed"}
    for why in ("nothing was written of 6 documents", "every document failed"):
        assert [each["refs"] for each in wants if why in (each["error"] or "")]
    assert not list(hosts.index("nothing").glob("*.lance")), "what was begun is dropped"
    found = instep(folder, "search", "word", "--entity", "Document")
    assert (found.returncode, "nothing is indexed yet" in found.stderr) == (1, True), found.stderr

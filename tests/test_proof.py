"""What was proved is proved again when anything on which it depends has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof import ABOUT, PROVED, ROOT, depends, digest, forget, is_proved, main

TESTS = "tests/shop/test_till.py"
FILES = {
    TESTS: """
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from tests.shop import money
        from . import shelves
        if TYPE_CHECKING:
            from instep.domain import shown

        CODE = "import sys; from instep.domain import named_in_a_text"

        def test() -> None:
            from instep.targets.shop.target import (
                Target,
            )
        """,
    "tests/shop/money.py": "coin = 1",
    "tests/shop/shelves.py": "",
    "tests/shop/conftest.py": "import tests.doubles.street",
    "tests/doubles/street.py": "",
    "tests/shop/prices.txt": "",
    "src/instep/domain/shown.py": "",
    "src/instep/domain/named_in_a_text.py": "",
    "src/instep/targets/__init__.py": "",
    "src/instep/targets/shop/target.py": "from instep.domain.deep import depth",
    "src/instep/domain/deep.py": "",
    "src/instep/domain/other.py": "",
    "requirements.lock": "",
}
NOT_ITS_OWN = {"src/instep/domain/shown.py", "src/instep/domain/other.py"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(line.removeprefix(" " * 8) for line in text.splitlines()))
    return tmp_path


def test_tests_depend_on_what_they_import_on_fixtures_and_on_data_beside_them(tree: Path) -> None:
    assert depends(TESTS, tree) == FILES.keys() - NOT_ITS_OWN


@pytest.mark.parametrize("name", FILES)
def test_any_change_of_what_tests_depend_on_asks_for_the_proof_and_no_other(tree: Path, name: str) -> None:
    proved = tree / "proved.txt"
    assert not is_proved(TESTS, tree, proved)
    proved.write_text(f"tests/test_other.py 123\n{TESTS} {digest(TESTS, tree)}\n")
    assert is_proved(TESTS, tree, proved)
    with (tree / name).open("a") as file:
        file.write("# changed\n")
    forget()
    assert is_proved(TESTS, tree, proved) is (name in NOT_ITS_OWN)


def test_a_file_that_is_new_or_gone_asks_for_the_proof(tree: Path) -> None:
    before = digest(TESTS, tree)
    (tree / "tests/shop/receipts.json").touch()
    forget()
    more = digest(TESTS, tree)
    (tree / "tests/shop/prices.txt").unlink()
    forget()
    assert len({before, more, digest(TESTS, tree)}) == 3


def test_a_contract_depends_on_its_own_adapter_only() -> None:
    found = depends("tests/targets/milvus/test_contract.py")
    assert {"src/instep/targets/milvus/target.py", "src/instep/testing/target.py", "requirements.lock"} <= found
    assert not [each for each in found if each.startswith(("src/instep/targets/qdrant/", "src/instep/jobs/"))]


@pytest.mark.parametrize("name", ["test_site", "test_cookbook"])
def test_tests_of_the_documentation_depend_on_all_pages_and_on_the_settings_of_the_site(name: str) -> None:
    found = depends(f"tests/docs/{name}.py")
    assert {"docs/page.md", "docs/images/page-job-dark.png", "README.md", "zensical.toml"} <= found
    assert "docs/page.md" not in depends("tests/web/test_page.py")


def test_stories_depend_on_what_works_on_jobs() -> None:
    found = depends("tests/e2e/test_faults.py")
    assert {"src/instep/jobs/wave.py", "src/instep/targets/lance/target.py", "tests/e2e/corpus.py"} <= found
    assert not [each for each in found if each.startswith(("src/instep/cli/", "src/instep/api/"))]


def test_what_is_said_of_stories_is_there() -> None:
    assert [start for start in ABOUT if not list(ROOT.glob(f"{start}*"))] == []
    assert [each for places in ABOUT.values() for each in places if not (ROOT / each).exists()] == []


@pytest.mark.parametrize("option", ["-k", "-x", "--maxfail=1", "--lf", "tests/test_proof.py::test_what"])
def test_nothing_is_noted_of_files_of_which_only_some_tests_run(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = PROVED.read_text()
    assert main(["tests/test_proof.py", option]) == pytest.ExitCode.USAGE_ERROR
    assert f"leave out {option}" in capsys.readouterr().err
    assert PROVED.read_text() == before

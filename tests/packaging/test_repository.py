"""Nothing in the repository ties it to one machine or one package host."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from tests.groups import GROUPS, group

REPOSITORY = Path(__file__).resolve().parents[2]
# Written in pieces, so that this file does not find itself.
HOSTS = re.compile(
    "|".join(["files\\.python" + "hosted", "py" + "pi\\.org", "repo1?\\.mav" + "en", "/wo" + "rk/ma" + "in"])
)


def test_no_file_names_a_package_host_or_a_path_of_one_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    files = [REPOSITORY / name for name in listed.stdout.split("\0") if name]
    assert len(files) > 50
    found = [
        f"{file.relative_to(REPOSITORY)}:{number}"
        for file in files
        if file.is_file()
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if HOSTS.search(line)
    ]
    assert found == []


def test_what_is_installed_here_runs_on_the_first_release_of_the_oldest_python() -> None:
    """Debian 12 has 3.11.2, where a library that wants 3.11.5 stops `make demo` before it begins."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = f"{project['requires-python'].removeprefix('>=')}.0"
    locked = re.findall(r"^([\w.-]+)==", (REPOSITORY / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    wanted = {each.name: each.metadata["Requires-Python"] or "" for each in distributions() if each.name in locked}
    assert len(wanted) > 100
    assert [f"{name} wants {python}" for name, python in wanted.items() if oldest not in SpecifierSet(python)] == []


def test_groups_of_tests_name_modules_that_are_there() -> None:
    tests = REPOSITORY / "tests"
    paths = [path.relative_to(tests).as_posix() for path in tests.rglob("test_*.py")]
    beginnings = [each for some in GROUPS.values() for each in some]
    assert [each for each in beginnings if not any(path.startswith(each) for path in paths)] == []
    assert group("sources/tables/test_spark_jdbc.py") == "spark"
    assert group("domain/test_refs.py") == "domain/test_refs.py"


@given(st.none())
def test_no_example_of_hypothesis_has_a_deadline(example: None) -> None:
    """For all tests, whatever else they set: see `tests/conftest.py`."""
    assert (example, settings().deadline) == (None, None)
    assert settings(max_examples=3).deadline is None

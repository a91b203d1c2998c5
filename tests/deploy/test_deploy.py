"""What lies in `deploy/` is what its tools take: Helm, Kubernetes, hadolint, Databricks' models, systemd."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import helm_python as helm
import kubernetes_validate
import pytest
import yaml
from databricks.bundles.jobs import Job

import instep
from instep.cli import main

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "instep"
#: A version of Kubernetes whose schemas the package has.
KUBERNETES = "1.34"

VALUES: list[dict[str, Any]] = [
    {},
    {"spark": {"enabled": True}},
    {"serve": {"enabled": False}, "worker": {"args": ["--watch"]}},
]


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name="handbook", namespace="search")
    return [each for text in files.values() for each in yaml.safe_load_all(text) if each]


def pods(manifests: Sequence[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in manifests:
        if "template" in each.get("spec", {}):
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]


def takes(arguments: Sequence[str]) -> bool:
    """Whether `instep` knows the command and its options: it refuses them before it shows its help."""
    return main([*arguments, "--help"]) == 0


def test_the_chart_is_as_helm_wants_it() -> None:
    found = helm.lint(str(CHART))
    assert [each for each in found["messages"] if each["error"] != "icon is recommended"] == []


@pytest.mark.parametrize("values", VALUES, ids=["plain", "spark", "watching"])
def test_manifests_are_of_kubernetes_and_pods_have_little_power(
    values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    manifests = rendered(values)
    for each in manifests:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    assert "Secret" not in {each["kind"] for each in manifests}, "they are referred to"
    found = dict(pods(manifests))
    assert {"handbook-migrate", "handbook-worker"} <= found.keys()
    assert ("handbook-spark-executor" in found) == ("spark" in values)
    for name, pod in found.items():
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["containers"]
        power = container["securityContext"]
        assert (power["allowPrivilegeEscalation"], power["readOnlyRootFilesystem"]) == (False, True)
        assert power["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]
        assert container["envFrom"] == [{"secretRef": {"name": "instep"}}]
        assert ("livenessProbe" in container) == (name != "handbook-migrate")
        if "command" not in container:
            assert takes(container["args"]), capsys.readouterr().err


@pytest.mark.parametrize("values", VALUES[:2], ids=["plain", "spark"])
def test_the_project_of_the_chart_is_one_that_instep_takes(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config,) = [each for each in rendered(values) if each["kind"] == "ConfigMap"]
    (tmp_path / "instep.yaml").write_text(config["data"]["instep.yaml"])
    monkeypatch.setenv("LEDGER_PASSWORD", "secret")
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    spark = instep.load(tmp_path).project.spark
    if values:
        assert spark.master == "spark://handbook-spark:7077"
        assert spark.config["spark.driver.host"] == "10.0.0.7"
    else:
        assert spark.master.startswith("local")


def test_hadolint_finds_nothing_in_the_containerfile() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, DEPLOY / "Containerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_job_of_the_bundle_is_one_that_databricks_knows(capsys: pytest.CaptureFixture[str]) -> None:
    bundle = yaml.safe_load((DEPLOY / "databricks" / "databricks.yml").read_text())
    declared = bundle["resources"]["jobs"]["instep"]
    # It refuses fields that it does not know, at any depth.
    assert Job.from_dict(json.loads(json.dumps(declared))).as_dict() == declared
    (task,) = declared["tasks"]
    script = DEPLOY / "databricks" / task["spark_python_task"]["python_file"]
    assert takes(task["spark_python_task"]["parameters"]), capsys.readouterr().err
    for argument, code in (("--version", 0), ("--nonsense", 64)):
        done = subprocess.run([sys.executable, script, argument], capture_output=True, check=False)
        assert done.returncode == code


@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda each: each.stem)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("systemd-analyze") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("systemd-analyze is missing")
        pytest.skip("no systemd-analyze")
    text = unit.read_text()
    command = next(line for line in text.splitlines() if line.startswith("ExecStart=")).removeprefix("ExecStart=")
    program, *arguments = shlex.split(command)
    assert program == "/opt/instep/bin/instep"
    assert takes(arguments), capsys.readouterr().err
    here = tmp_path / unit.name
    here.write_text(text.replace(program, str(Path(sys.executable).with_name("instep"))))
    done = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

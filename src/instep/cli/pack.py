"""`instep pack`: the libraries of this environment, for executors of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from instep.cli.options import JsonOption
from instep.cli.output import Output
from instep.telemetry.texts import bytes_text


def pack(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write it: .tar.gz, .tgz or .tar.")
    ] = Path("environment.tar.gz"),
    as_json: JsonOption = False,
) -> None:
    """Pack libraries for executors of a Spark cluster.

    They are those of this environment, for executors that have none.

    Executors need a Python of the same minor version, and nothing else. Instep itself and the project's own code travel
    with each session. Pack again when a library has changed: the environment that runs Instep is what is packed.

    \b
    Then, in instep.yaml (the command prints these lines with its own values):
      spark:
        master: spark://head:7077
        config:
          spark.archives: /home/me/environment.tar.gz#environment
          spark.executorEnv.PYTHONPATH: ./environment
          spark.pyspark.python: python3.11

    \b
    Examples:
      instep pack
      instep pack -o /shared/environment.tar.gz
    """
    from instep.pipeline.engine import environment_archive

    out = Output(as_json=as_json)
    out.note("Packing what is installed here (a minute for a gigabyte) …")
    packed = environment_archive.pack(output)

    def show() -> None:
        out.line(f"{packed.path}: {packed.distributions} distributions, {bytes_text(packed.size)}")
        out.line("For instep.yaml:")
        out.line("  spark:")
        out.line("    config:")
        for key, value in packed.config.items():
            out.line(f"      {key}: {value}")

    out.result(
        {
            "path": str(packed.path),
            "bytes": packed.size,
            "distributions": packed.distributions,
            "config": packed.config,
        },
        show,
    )

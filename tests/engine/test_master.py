"""What listens at the address of a standalone master is asked whether it is one, before a JVM is started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from instep.errors import Away
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.java import find_java
from instep.pipeline.engine.master import demand_master
from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.settings import SparkSettings
from tests.waiting import until

pytestmark = pytest.mark.spark


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """Gives every caller this answer, or none and keeps the line open."""
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:  # Closed.
                return
            kept.append(connection)
            if answer is not None:
                connection.recv(1024)
                connection.sendall(answer)
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"spark://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in kept:
                each.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "the Spark master does not answer: it says nothing"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "something else than Spark is there, and says b'HTTP/1.1"),
    ],
)
def test_an_address_that_is_no_master_is_refused_without_a_jvm(
    monkeypatch: pytest.MonkeyPatch, answer: bytes | None, why: str
) -> None:
    monkeypatch.setattr("instep.pipeline.engine.master._ANSWER_SECONDS", 0.5)
    with listening(answer) as master:
        with pytest.raises(Away, match=why) as raised:
            LazySpark(SparkSettings(master=master)).get()
        assert raised.value.where == master
    assert sparkapi.jvm_exit() is None


@pytest.mark.parametrize("answer", [b"", b"\x15\x03\x03\x00\x02\x02\x46\x00\x00"])
def test_one_that_wants_tls_is_left_to_spark(answer: bytes) -> None:
    with listening(answer) as master:
        demand_master(master)


def test_a_master_answers_unless_it_is_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that demands a secret, too."""
    secret = ["-XX:TieredStopAtLevel=1", "-Dspark.authenticate=true", "-Dspark.authenticate.secret=hush"]
    monkeypatch.setattr("instep.pipeline.engine.master._ANSWER_SECONDS", 60.0)
    home, log = Path(pyspark.__file__).parent, tmp_path / "master.log"
    opened = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("java.nio", "sun.nio.ch")]
    main = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    command = [str(find_java()), "-cp", f"{home}/jars/*", *secret, *opened, *main]
    with (
        log.open("w") as stream,
        subprocess.Popen(command, env=os.environ | {"SPARK_HOME": str(home)}, stdout=stream, stderr=stream) as process,
    ):
        try:
            until(lambda: "Starting Spark master at" in log.read_text(), log)
            master = log.read_text().partition("Starting Spark master at ")[2].split()[0]
            demand_master(master)
            monkeypatch.setattr("instep.pipeline.engine.master._ANSWER_SECONDS", 0.2)
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(Away, match="it says nothing"):
                demand_master(master)
        finally:
            process.kill()

"""Kafka from Maven Central: one node in KRaft mode, broker and controller at once."""

from __future__ import annotations

import atexit
import functools
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.servers.jars import jars
from tests.servers.process import Server, free_port

_BROKER = ("org.apache.kafka:kafka_2.13:4.1.1",)
_ID = "MkU3OEVBNTcwNTJENDM2Qk"


class KafkaServer(Server):
    """With `login`, clients have to say user and password."""

    kind = "kafka"
    farewell = signal.SIGKILL

    def __init__(self, folder: Path, *, login: bool = False) -> None:
        super().__init__()
        self._jars, self._login = folder, login

    def _install(self) -> None:
        """The folder is made with the port: see `_command`."""

    def _java(self, main: str, *arguments: str | Path) -> list[str | Path]:
        small = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        return ["java", *small, "-cp", f"{self._jars}/*", main, *arguments]

    def _command(self) -> Sequence[str | Path]:
        settings = self.folder / "server.properties"
        if not settings.exists() or f":{self.port}," not in settings.read_text():
            self._configure(settings)
            formatting = ("format", "-t", _ID, "-c", settings, "--ignore-formatted")
            self.run(*self._java("kafka.tools.StorageTool", *formatting))
        return self._java("kafka.Kafka", settings)

    def _configure(self, settings: Path) -> None:
        way, controller = "SASL_PLAINTEXT" if self._login else "PLAINTEXT", free_port()
        said = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"CLIENT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"CLIENT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": f"CLIENT:{way},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "CLIENT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.folder / "logs",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "auto.create.topics.enable": "false",
            "log.retention.check.interval.ms": 500,
            "log.cleaner.backoff.ms": 200,
            "log.initial.task.delay.ms": 500,
        }
        if self._login:
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            own = f'{module} required username="{self.user}" password="{self.password}"'
            said |= {
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.client.plain.sasl.jaas.config": f'{own} user_{self.user}="{self.password}";',
            }
        settings.write_text("".join(f"{name}={value}\n" for name, value in said.items()))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def settings(self) -> dict[str, str]:
        found = {"bootstrap.servers": self.address}
        if self._login:
            found |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
            found |= {"sasl.username": self.user, "sasl.password": self.password}
        return found

    def _greet(self) -> None:
        self.admin().list_topics(timeout=1)

    def admin(self) -> AdminClient:
        return AdminClient({**self.settings(), "log_level": 0})

    def make(self, topic: str, partitions: int = 1, **settings: str) -> None:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        admin = self.admin()  # Its answers end with it.
        admin.create_topics([new])[topic].result(30)

    def drop(self, topic: str) -> None:
        admin = self.admin()  # Its answers end with it.
        admin.delete_topics([topic])[topic].result(30)

    def grow(self, topic: str, partitions: int) -> None:
        admin = self.admin()  # Its answers end with it.
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)

    def send(self, topic: str, messages: Iterable[dict[str, Any]]) -> None:
        """Each has `value`, and perhaps `key`, `partition` and `timestamp`."""
        producer = Producer({**self.settings(), "linger.ms": 5, "log_level": 0})
        for each in messages:
            producer.produce(topic, **each)
            producer.poll(0)
        assert producer.flush(30) == 0, "not all messages were taken"

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        raise NotImplementedError("it has no statements")

    def url(self, database: str = "", *, user: str | None = None, password: str | None = None) -> str:
        return self.address


@functools.cache
def running_kafka(*, login: bool = False) -> KafkaServer:
    """The one of this process; skips the test where its jars cannot be had."""
    server = KafkaServer(jars(_BROKER).needed(), login=login)
    atexit.register(server.stop)
    server.start()
    return server

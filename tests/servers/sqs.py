"""SQS from Maven Central: ElasticMQ, a server of queues that speaks its protocol."""

from __future__ import annotations

import atexit
import functools
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.servers.jars import jars
from tests.servers.process import Server

_SERVER = ("org.elasticmq:elasticmq-server_2.13:1.6.9",)
_SETTINGS = """
include classpath("application.conf")
node-address {{ host = "127.0.0.1", port = {port} }}
rest-sqs {{ bind-port = {port}, bind-hostname = "127.0.0.1", sqs-limits = strict }}
rest-stats {{ enabled = false }}
"""


class SqsServer(Server):
    kind = "sqs"
    farewell = signal.SIGKILL

    def _install(self) -> None:
        self._jars = jars(_SERVER).needed()

    def _command(self) -> Sequence[str | Path]:
        settings = self.folder / "settings.conf"
        settings.write_text(_SETTINGS.format(port=self.port))
        return ["java", "-Xmx128m", f"-Dconfig.file={settings}", "-cp", f"{self._jars}/*", "org.elasticmq.server.Main"]

    def _greet(self) -> None:
        with urlopen(f"http://127.0.0.1:{self.port}/?Action=ListQueues", timeout=5) as answer:
            answer.read()

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        raise NotImplementedError("it has no statements")

    def url(self, database: str = "docs", *, user: str | None = None, password: str | None = None) -> str:
        """`database` is a queue."""
        return f"http://127.0.0.1:{self.port}/000000000000/{database}"

    @property
    def options(self) -> dict[str, Any]:
        """Options of a source, by which its queue is opened as well."""
        return {"key": self.user, "secret": self.password, "client_kwargs": {"region_name": "us-east-1"}}

    def client(self) -> Any:
        from botocore.session import get_session

        return get_session().create_client(
            "sqs",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name="us-east-1",
            aws_access_key_id=self.user,
            aws_secret_access_key=self.password,
        )

    def queue(self, name: str, *, visibility: int = 30) -> str:
        """Make a queue, whose messages come again after so many seconds; returns its URL."""
        attributes = {"VisibilityTimeout": str(visibility)}
        made: str = self.client().create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        return made

    def tell(self, url: str, bucket: str, *keys: str, event: str = "ObjectCreated:Put") -> None:
        """Send what S3 sends of these keys, which are as they stand in its messages."""
        records = [
            {"eventSource": "aws:s3", "eventName": event, "s3": {"bucket": {"name": bucket}, "object": {"key": key}}}
            for key in keys
        ]
        self.client().send_message(QueueUrl=url, MessageBody=json.dumps({"Records": records}))

    def left(self, url: str) -> int:
        """Messages in a queue, also those that somebody has received."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client().get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(found[each]) for each in names)


@functools.cache
def running_sqs() -> SqsServer:
    """The one of this process; skips the test where its jars cannot be had."""
    server = SqsServer()
    atexit.register(server.stop)
    server.start()
    return server

"""Messages of a queue of SQS about objects of S3: what has changed in a bucket is known without listing it.

Forms of messages: https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html (as S3
sends them, or in an envelope of SNS), and EventBridge's `Object Created` and `Object Deleted`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_plus, urlsplit

from instep.domain.texts import cleaned
from instep.errors import Away, UserError

#: Seconds that a request waits for messages, and after one that failed.
_WAIT, _PAUSE = 10, 5.0
#: Messages of one request, by SQS.
_BATCH: Final = 10
#: Paths that are taken from the queue and not done, at most: others stay in it.
MOST_PATHS: Final = 10_000
_REGION = re.compile(r"sqs\.([a-z0-9-]+)\.amazonaws\.com")
_Client: TypeAlias = Any


@dataclass(frozen=True)
class SqsQueue:
    """The address of a queue. `options` are those of the source: its `key`, `secret` and `token` open the queue, too,
    else what the environment of AWS has.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def check(self) -> str:
        """Describe the queue. Raises `UserError` if it cannot be read."""
        try:
            asked = {"QueueUrl": self.url, "AttributeNames": ["ApproximateNumberOfMessages"]}
            found = self.client().get_queue_attributes(**asked)["Attributes"]
        except Exception as error:  # Those of the library have no base of their own.
            kind = UserError if hasattr(error, "response") else Away
            hint = "Check the address, that it answers, and that the credentials may read it."
            raise kind(f"the queue cannot be read: {_reason(error)}", where=self.url, hint=hint) from None
        return f"{int(found['ApproximateNumberOfMessages']):,} messages in {self.url}"

    def client(self) -> _Client:
        """A client of the library. Raises `UserError` if that is not installed."""
        try:
            from botocore.config import Config
            from botocore.session import get_session
        except ImportError:
            hint = "Install it: pip install 'instep[s3]'"
            raise UserError("events of SQS need a package that is not installed", where=self.url, hint=hint) from None
        address = urlsplit(self.url)
        region = _REGION.search(address.netloc)
        named = {"key": "aws_access_key_id", "secret": "aws_secret_access_key", "token": "aws_session_token"}
        return get_session().create_client(
            "sqs",
            endpoint_url=f"{address.scheme}://{address.netloc}",
            region_name=region[1] if region else (self.options.get("client_kwargs") or {}).get("region_name"),
            config=Config(read_timeout=_WAIT + 10, connect_timeout=10, retries={"total_max_attempts": 1}),
            **{name: self.options[key] for key, name in named.items() if self.options.get(key)},
        )


class SqsEvents:
    """Implements `sources.document_source.SourceEvents`. A message is deleted when what it tells is indexed; until then
    the queue gives it again, to this or another worker, after its visibility timeout.
    """

    def __init__(self, queue: SqsQueue) -> None:
        self._queue = queue
        self._lock = threading.Lock()
        self._new: set[str] = set()
        #: Receipt and paths that are not done, by the ids of messages.
        self._open: dict[str, tuple[str, set[str]]] = {}
        self._finished: list[str] = []
        self._closed = threading.Event()
        self.failure = ""
        self._thread = threading.Thread(target=self._follow, name="sqs-events", daemon=True)
        self._thread.start()

    def take(self) -> Collection[str]:
        """Paths as `s3://bucket/key`."""
        with self._lock:
            taken, self._new = self._new, set()
        return taken

    def done(self, paths: Collection[str]) -> None:
        with self._lock:
            looked = set(paths) - self._new  # Of these a message came after the look: it stays until the next one.
            for id, (receipt, left) in list(self._open.items()):
                left.difference_update(looked)
                if not left:
                    self._finished.append(receipt)
                    del self._open[id]

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=1)  # A request that waits for messages is left: it ends with the process.

    def _follow(self) -> None:
        client = self._queue.client()
        while not self._closed.is_set():
            try:
                self._delete(client)
                self._receive(client)
                self.failure = ""
            except Exception as error:  # Whatever it is: the next request may go well.
                self.failure = _reason(error)
                self._closed.wait(_PAUSE)

    def _receive(self, client: _Client) -> None:
        with self._lock:
            full = sum(len(paths) for _, paths in self._open.values()) >= MOST_PATHS
            waiting = bool(self._open)
        if full:
            self._closed.wait(1.0)
            return
        # What is done is deleted at the next turn: not long, while something is waited for.
        seconds = 1 if waiting else _WAIT
        asked = {"QueueUrl": self._queue.url, "MaxNumberOfMessages": _BATCH, "WaitTimeSeconds": seconds}
        found = client.receive_message(**asked).get("Messages") or []
        with self._lock:
            for each in found:
                paths = set(objects(each["Body"]))
                if not paths:
                    self._finished.append(each["ReceiptHandle"])
                    continue
                self._open[each["MessageId"]] = each["ReceiptHandle"], paths
                self._new |= paths

    def _delete(self, client: _Client) -> None:
        with self._lock:
            receipts, self._finished = self._finished, []
        for at in range(0, len(receipts), _BATCH):
            some = receipts[at : at + _BATCH]
            entries = [{"Id": str(number), "ReceiptHandle": each} for number, each in enumerate(some)]
            client.delete_message_batch(QueueUrl=self._queue.url, Entries=entries)


def objects(body: str) -> Iterator[str]:
    """The objects that a message names, as `s3://bucket/key`; none in one of another kind, such as S3's own test."""
    try:
        message = json.loads(body)
        if isinstance(message, dict) and isinstance(message.get("Message"), str):
            message = json.loads(message["Message"])  # In an envelope of SNS.
        if not isinstance(message, dict):
            return
        if "detail" in message:  # EventBridge tells keys as they are.
            yield _object(message["detail"], str)
        for each in message.get("Records") or ():
            with suppress(KeyError, TypeError):  # One of another kind keeps none from being told.
                yield _object(each["s3"], unquote_plus)
    except (ValueError, KeyError, TypeError):
        return


def _object(said: Mapping[str, Any], key_of: Callable[[str], str]) -> str:
    return f"s3://{said['bucket']['name']}/{key_of(said['object']['key'])}"


def _reason(error: Exception) -> str:
    return cleaned(f"{type(error).__name__}: {error}")[:300]

"""A topic in Kafka into PostgreSQL, messages a second and the time to a row: `python -m bench.topics`.

Messages are of about 1 kB, each of a document of its own. First so many wait, and one run takes them; beside it stands
the bare limit: a consumer that takes the same messages, 10,000 at a time, decodes them, and puts id and text into a
table with a key, by COPY and one upsert. Then `instep run --watch` follows a producer of `--rate` messages a second,
and the time of each is that until a look at the table finds its row, ten times a second.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import msgspec
import numpy as np
import psutil
import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.servers.kafka import KafkaServer, running_kafka
from tests.servers.postgres import running_postgres
from tests.servers.process import Server

import instep

_TEXT = "The tide came in at four, and the boats that lay on the sand were lifted one by one. "
_PARTITIONS = 4


class _Line(msgspec.Struct):
    id: str
    text: str


class Taken(NamedTuple):
    """The seconds of a load: by the clock, of CPU of this process, and of CPU of PostgreSQL."""

    seconds: float
    own: float
    server: float


def message(number: int) -> dict[str, str]:
    text = f"{number} {_TEXT * 11}"
    return {"key": str(number), "value": json.dumps({"id": str(number), "text": text})}


def declared(folder: Path, kafka: KafkaServer, uri: str) -> None:
    (folder / "instep.yaml").write_text(
        f"""name: bench
engine: inline
targets: {{index: {{type: postgres, uri: "{uri}"}}}}
entities:
  Ticket:
    source: {{type: kafka, servers: "{kafka.address}", topic: tickets}}
    chunk: {{size: 2000}}
    embed: {{type: hashing, dimensions: 16}}
"""
    )


def bare(kafka: KafkaServer, uri: str, number: int) -> None:
    """The same messages without Instep."""
    settings = {"group.id": "bare", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer, decoder = Consumer({**kafka.settings(), **settings}), msgspec.json.Decoder(_Line)
    consumer.assign([TopicPartition("tickets", each, 0) for each in range(_PARTITIONS)])
    with psycopg.connect(uri, autocommit=True) as session:
        session.execute("CREATE TABLE IF NOT EXISTS bare (id text PRIMARY KEY, text text)")
        session.execute("CREATE TEMP TABLE come (id text, text text)")
        while number > 0:
            lines = [decoder.decode(each.value() or b"") for each in consumer.consume(10_000, timeout=1)]
            number -= len(lines)
            with session.transaction(), session.cursor() as cursor:
                with cursor.copy("COPY come FROM STDIN") as copy:
                    copy.write("".join(f"{each.id}\t{each.text}\n" for each in lines))
                cursor.execute(
                    "INSERT INTO bare SELECT * FROM come ON CONFLICT (id) DO UPDATE SET text = excluded.text"
                )
                cursor.execute("TRUNCATE come")
    consumer.close()


def _timed(work: Callable[[], object], server: Server) -> Taken:
    own, of_server, began = time.process_time(), _cpu(server), time.monotonic()
    work()
    return Taken(time.monotonic() - began, time.process_time() - own, _cpu(server) - of_server)


def _cpu(server: Server) -> float:
    """Seconds of CPU that a server and its processes have used."""
    process = psutil.Process(server.pid)
    living = (each.cpu_times() for each in process.children())
    return sum(process.cpu_times()[:4]) + sum(sum(each[:2]) for each in living)


def sent_at_a_rate(kafka: KafkaServer, first: int, rate: int, seconds: int, sent: dict[int, float]) -> None:
    """Send, and note the time at which each message was."""
    producer, began = Producer({**kafka.settings(), "linger.ms": 5, "log_level": 0}), time.monotonic()
    for tick in range(seconds * 10):
        numbers = range(first + tick * rate // 10, first + (tick + 1) * rate // 10)
        time.sleep(max(0.0, began + tick / 10 - time.monotonic()))
        for each in numbers:
            said = message(each)
            producer.produce("tickets", key=said["key"], value=said["value"])
        producer.flush()
        sent |= dict.fromkeys(numbers, time.monotonic())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=40_000)
    options.add_argument("--rate", type=int, default=1_000)
    options.add_argument("--seconds", type=int, default=20)
    asked = options.parse_args()
    # In the background of a shell that is not interactive Ctrl-C is ignored, and whoever is started would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kafka, postgres = running_kafka(), running_postgres()
    kafka.make("tickets", _PARTITIONS)
    postgres.execute("CREATE DATABASE bench")
    uri = postgres.url("bench").replace("postgresql+psycopg", "postgresql")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        declared(folder, kafka, uri)
        kafka.send("tickets", [message(0)])
        list(instep.load(folder).run())
        kafka.send("tickets", map(message, range(1, asked.messages + 1)))
        limit = _timed(lambda: bare(kafka, uri, asked.messages + 1), postgres)
        took = _timed(lambda: list(instep.load(folder).run()), postgres)
        for what, each in (("bare", limit), ("Instep", took)):
            print(
                f"{what}: {asked.messages:,} messages in {each.seconds:.1f} s, {asked.messages / each.seconds:,.0f} a "
                f"second; CPU a message: {each.own / asked.messages * 1e6:.0f} µs here, "
                f"{each.server / asked.messages * 1e6:.0f} µs in PostgreSQL"
            )
        cpu = (took.own + took.server) / (limit.own + limit.server)
        print(f"against the bare limit: {took.seconds / limit.seconds:.1f} times the time, {cpu:.1f} times the CPU")
        _follow(folder, kafka, uri, asked)


def _follow(folder: Path, kafka: KafkaServer, uri: str, asked: argparse.Namespace) -> None:
    command = [sys.executable, "-m", "instep", "run", "--watch", "--project", str(folder)]
    watching = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    sent: dict[int, float] = {}
    seen: dict[int, float] = {}
    first, number = asked.messages + 1, asked.rate * asked.seconds
    time.sleep(5)
    sending = Thread(target=sent_at_a_rate, args=(kafka, first, asked.rate, asked.seconds, sent))
    sending.start()
    with psycopg.connect(uri, autocommit=True) as session:
        ((table,),) = session.execute(
            "SELECT quote_ident(table_schema) || '.' || quote_ident(table_name) FROM information_schema.columns "
            "WHERE column_name = '_row'"
        ).fetchall()
        ((last,),) = session.execute(f"SELECT max(_row) FROM {table}").fetchall()
        deadline = time.monotonic() + asked.seconds + 60
        while len(seen) < number and time.monotonic() < deadline:
            found = session.execute(f"SELECT _row, source_uri FROM {table} WHERE _row > %s", [last]).fetchall()
            now, last = time.monotonic(), max([last, *(row for row, _ in found)])
            for _, each in found:
                seen.setdefault(int(each.rsplit("/", 1)[-1]), now)
            time.sleep(0.1)
    sending.join()
    times = np.array([seen[each] - at for each, at in sent.items() if each in seen])
    print(
        f"at {asked.rate:,} a second: {len(times):,} of {number:,} seen; p50 {np.percentile(times, 50):.2f} s, "
        f"p99 {np.percentile(times, 99):.2f} s, longest {times.max():.2f} s",
        flush=True,
    )
    watching.send_signal(signal.SIGINT)
    watching.wait(60)


if __name__ == "__main__":
    main()

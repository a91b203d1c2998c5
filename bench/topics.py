"""A topic in Kafka into PostgreSQL, messages a second and the time to a row: `python -m bench.topics`.

Messages are of about 1 kB, each of a document of its own. First so many wait, and one run takes them; then
`instep run --watch` follows a producer of `--rate` messages a second, and the time of each is that until a look at the
table finds its row, four times a second (so it is up to a quarter of a second too long).
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psycopg
from tests.servers.kafka import KafkaServer, running_kafka
from tests.servers.postgres import running_postgres

import instep

_TEXT = "The tide came in at four, and the boats that lay on the sand were lifted one by one. "


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


def sent_at_a_rate(kafka: KafkaServer, first: int, rate: int, seconds: int) -> dict[int, float]:
    """The time at which each message was sent."""
    sent: dict[int, float] = {}
    began = time.monotonic()
    for tick in range(seconds * 10):
        numbers = range(first + tick * rate // 10, first + (tick + 1) * rate // 10)
        time.sleep(max(0.0, began + tick / 10 - time.monotonic()))
        kafka.send("tickets", map(message, numbers))
        sent |= dict.fromkeys(numbers, time.monotonic())
    return sent


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=100_000)
    options.add_argument("--rate", type=int, default=1_000)
    options.add_argument("--seconds", type=int, default=20)
    asked = options.parse_args()
    kafka, postgres = running_kafka(), running_postgres()
    kafka.make("tickets", 4)
    postgres.execute("CREATE DATABASE bench")
    uri = postgres.url("bench").replace("postgresql+psycopg", "postgresql")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        declared(folder, kafka, uri)
        kafka.send("tickets", [message(0)])
        list(instep.load(folder).run())
        kafka.send("tickets", map(message, range(1, asked.messages + 1)))
        began = time.monotonic()
        list(instep.load(folder).run())
        took = time.monotonic() - began
        print(f"{asked.messages:,} messages in {took:.1f} s: {asked.messages / took:,.0f} a second")
        _follow(folder, kafka, uri, asked)


def _follow(folder: Path, kafka: KafkaServer, uri: str, asked: argparse.Namespace) -> None:
    from threading import Thread

    command = [sys.executable, "-m", "instep", "run", "--watch", "--project", str(folder)]
    watching = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    sent: dict[int, float] = {}
    first, number = asked.messages + 1, asked.rate * asked.seconds
    time.sleep(5)
    sending = Thread(target=lambda: sent.update(sent_at_a_rate(kafka, first, asked.rate, asked.seconds)))
    sending.start()
    seen: dict[int, float] = {}
    with psycopg.connect(uri, autocommit=True) as session:
        (table,) = session.execute(
            "SELECT table_schema || '.' || quote_ident(table_name) FROM information_schema.columns "
            "WHERE column_name = 'source_uri' ORDER BY 1 LIMIT 1"
        ).fetchone() or ("",)
        deadline = time.monotonic() + asked.seconds + 60
        while len(seen) < number and time.monotonic() < deadline:
            found = session.execute(f"SELECT source_uri FROM {table}").fetchall()
            now = time.monotonic()
            for (each,) in found:
                at = int(each.rsplit("/", 1)[-1])
                if at >= first:
                    seen.setdefault(at, now)
            time.sleep(0.25)
    sending.join()
    watching.send_signal(signal.SIGINT)
    watching.wait(60)
    times = np.array([seen[each] - sent[each] for each in seen])
    print(
        f"{len(seen):,} of {number:,} seen; p50 {np.percentile(times, 50):.2f} s, p99 {np.percentile(times, 99):.2f} s"
    )


if __name__ == "__main__":
    main()

"""Do the waves of a first run keep every core busy?  `python -m bench.busy [--documents 160000] [--master local[4]]`

Three corpora of so many documents: equal ones, sizes by Zipf, and equal ones beside one that has a tenth of all text.
Spark's own event log says when each task ran. The *busy share* is the time of all tasks, divided by the time in which
stages ran and by the slots of the master: with more slots than the machine has cores it says that tasks were there for
all slots, not that these had a core each. *Skew* is the longest task of a wave beside the mean of its tasks.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.environment import WORK, describe_machine
from bench.report import show
from instep import Instep
from instep.project import Project

DOCUMENTS, MASTER, GOAL = 160_000, "local[4]", 0.9
CORPORA = ("equal", "zipf", "giant")
#: Characters of a usual document.
_SIZE = 200


@dataclass
class Wave:
    """One stage of Spark: in milliseconds, when it ran, and how long each of its tasks did."""

    began: int = 0
    ended: int = 0
    tasks: list[int] = field(default_factory=list)

    @property
    def wall(self) -> int:
        return self.ended - self.began

    @property
    def skew(self) -> float:
        return max(self.tasks) / statistics.mean(self.tasks)


def sizes(corpus: str, documents: int) -> Iterator[int]:
    """Characters of each document."""
    for place in range(documents):
        if corpus == "zipf":
            yield max(40, round(_SIZE * documents / 12 / (place + 1)))
        else:
            yield _SIZE
    if corpus == "giant":
        yield documents * _SIZE // 10


def write_feed(path: Path, corpus: str, documents: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    words = " ".join(f"word{number % 997}" for number in range(200_000))
    with path.open("w", encoding="utf-8") as file:
        for place, size in enumerate(sizes(corpus, documents)):
            start = place * 37 % 1_000_000
            text = (words[start : start + size] if size < 100_000 else words * (size // len(words) + 1))[:size]
            file.write(json.dumps({"id": f"d{place}", "version": 1, "text": text}) + "\n")


def waves(corpus: str, documents: int, master: str) -> list[Wave]:
    """Of a first run with Spark, the longest stages of which are waves."""
    root, log = WORK / "busy" / corpus, WORK / "busy" / corpus / "events"
    shutil.rmtree(root, ignore_errors=True)
    log.mkdir(parents=True)
    write_feed(root / "feed.jsonl", corpus, documents)
    config = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": log.as_uri()}
    project = Project.model_validate(
        {
            "name": "bench",
            "root": root,
            "engine": "spark",
            "spark": {"master": master, "config": config},
            "targets": {"index": {"type": "lance", "uri": "index"}},
            "entities": {
                "Document": {
                    "source": {"type": "feed", "path": "feed.jsonl"},
                    "limits": {"max_line_bytes": 64_000_000},  # The longest text is one line.
                }
            },
        }
    )
    (result,) = Instep(project).run()
    if str(result.state) != "COMPLETED":
        raise SystemExit(f"the run ended {result.state}: {result.notes}")
    return list(stages(log))


def stages(log: Path) -> Iterator[Wave]:
    """What Spark's event logs in a folder say of its stages."""
    found: defaultdict[int, Wave] = defaultdict(Wave)
    for file in sorted(log.rglob("events_*")):
        for line in file.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event.get("Event") == "SparkListenerTaskEnd":
                task = event["Task Info"]
                found[event["Stage ID"]].tasks.append(task["Finish Time"] - task["Launch Time"])
            elif event.get("Event") == "SparkListenerStageCompleted":
                stage = event["Stage Info"]
                here = found[stage["Stage ID"]]
                here.began, here.ended = stage["Submission Time"], stage["Completion Time"]
    return iter([each for each in found.values() if each.tasks])


def slots_of(master: str) -> int:
    found = re.fullmatch(r"local\[(\d+)\]", master)
    if found is None:
        raise SystemExit(f"{master}: a master such as local[4] says how many slots there are")
    return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.busy", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--master", default=MASTER)
    parser.add_argument("--corpora", default=",".join(CORPORA))
    options = parser.parse_args()
    slots = slots_of(options.master)
    print(", ".join(f"{name} {value}" for name, value in describe_machine().items()) + "\n")
    rows = []
    for corpus in options.corpora.split(","):
        found = waves(corpus, options.documents, options.master)
        busy = sum(sum(each.tasks) for each in found) / (slots * sum(each.wall for each in found))
        fewest = min(min(len(each.tasks), slots) for each in found)
        told = [f"{len(each.tasks)}: {each.wall / 1_000:.1f} s, skew {each.skew:.2f}" for each in found]
        met = "" if corpus != "equal" else "met" if busy >= GOAL else "MISSED"
        rows.append([corpus, str(len(found)), str(fewest), f"{busy:.2f}", met, "; ".join(told)])
    titles = ["corpus", "waves", "busy slots, least", "busy share", f"goal {GOAL}", "tasks of each wave"]
    show(f"{options.documents:,} documents, {options.master}", titles, rows)


if __name__ == "__main__":
    main()

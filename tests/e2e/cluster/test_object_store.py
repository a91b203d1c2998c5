"""Source, target and state in an object store that throttles, breaks off and goes away under a wave on the cluster."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import corpus, truth
from tests.e2e.cluster.held import HeldRun
from tests.e2e.cluster.hosts import Hosts, instep
from tests.servers.postgres import running_postgres
from tests.servers.proxy import Proxy
from tests.servers.s3 import S3Server, running_s3

#: Throttling is tried without Spark, and secrets in an object store on the cluster, elsewhere.
pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy(running_s3().port, seed=5)
    yield made
    made.close()


def _write_credentials(folder: Path) -> None:
    """A file of them, as each host has its own."""
    store = running_s3()
    text = f"[default]\naws_access_key_id={store.user}\naws_secret_access_key={store.password}\n"
    (folder / "credentials").write_text(text)


def _host(folder: Path, proxy: Proxy) -> dict[str, str]:
    """The environment of a host that has its credentials in a file of this folder."""
    return {
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def _upload(store: S3Server, docs: Path, name: str) -> None:
    for each in docs.rglob("*.md"):
        store.files().pipe(f"{store.bucket}/{name}/docs/{each.relative_to(docs).as_posix()}", each.read_bytes())


def _wrong(store: S3Server, name: str, docs: Path, copy: Path) -> str:
    """What differs between the index in the store and the documents, by their texts."""
    store.files().get(f"{store.bucket}/{name}/index", str(copy), recursive=True)
    want, have = (
        Counter(("", text) for _, text in each.elements()) for each in (truth.expected(docs), truth.stored(copy))
    )
    return truth.difference(want, have)


def test_an_object_store_with_faults_loses_nothing(hosts: Hosts, proxy: Proxy, tmp_path: Path) -> None:
    store, ledger, name = running_s3(), running_postgres(), "stored"
    ledger.execute("CREATE DATABASE stored")
    here, there = _host(hosts.laptop, proxy), _host(hosts.own, proxy)
    for folder in (hosts.laptop, hosts.cluster.own_of(0), hosts.cluster.own_of(1)):
        _write_credentials(folder)

    def amend(run: HeldRun) -> None:
        _upload(store, run.docs, name)
        file = run.folder / "instep.yaml"
        text = file.read_text().replace(f"uri: {hosts.index(name)}", f"uri: {store.url(name)}/index")
        file.write_text(text.replace(f'path: "{run.docs}"', f'path: "{store.url(name)}/docs"'))

    run = HeldRun(
        hosts,
        name,
        extra=f"ledger: {ledger.url(name)}\nstate: {store.url(name)}/state",
        config={f"spark.executorEnv.{key}": value for key, value in there.items()},
        amend=amend,
        env=here,
    )
    try:
        run.running()
        proxy.slow = proxy.resets = 0.05
        run.release()
        time.sleep(1.0)
        proxy.away = True
        time.sleep(2.0)
        proxy.away = False
        run.finish()
        proxy.slow = proxy.resets = 0.0
        assert proxy.done["reset"] > 0
        assert not _wrong(store, name, run.docs, tmp_path / "first")

        corpus.write(run.docs, range(3), seed=1)
        _upload(store, run.docs, name)
        corpus.path(run.docs, 7).unlink()
        store.files().rm_file(f"{store.bucket}/{name}/docs/{corpus.path(run.docs, 7).relative_to(run.docs)}")
        done = instep(run.folder, "run", "--json", env=here)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not _wrong(store, name, run.docs, tmp_path / "second")
        assert json.loads(instep(run.folder, "failures", "--json", env=here).stdout) == []
        config = (run.folder / "instep.yaml").read_text()
        assert store.password not in config.replace(ledger.url(name), "")
    finally:
        run.end()

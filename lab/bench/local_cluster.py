"""A scheduler and workers of Dask on loopback, over TLS, as processes that are started as docs/scale.md says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.config.model import QuestionsOptions
from core.paths import CHECKOUT
from ops import certificates

_NONE: Mapping[str, str] = MappingProxyType({})
_START_SECONDS = 300.0  # a bound against hanging: each imports for seconds where a machine is busy


@dataclass(slots=True)
class LocalCluster:
    """Its folder has certificates and logs."""

    folder: Path
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)  # of its workers
    scheduler: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        """The address of the scheduler."""
        return f"tls://127.0.0.1:{self.port}"

    @property
    def options(self) -> QuestionsOptions:
        """The table ``[questions]``."""
        ca, member = (self.folder / "certificates" / name for name in ("ca.crt", "member.pem"))
        return QuestionsOptions(cluster=self.address, ca_file=ca, certificate_file=member, key_file=member)

    def make_certificates(self) -> None:
        """Certificates of a new CA."""
        self.folder.mkdir(exist_ok=True)
        certificates.cluster_member(self.folder / "pki", self.folder / "certificates")

    def schedule(self, environment: Mapping[str, str] = _NONE) -> None:
        """Start the scheduler, with certificates; it listens when this returns."""
        self.make_certificates()
        self.scheduler = self._start("scheduler", ["--port", str(self.port)], environment)
        with self.client():
            pass

    def work(self, checkout: Path = CHECKOUT, environment: Mapping[str, str] = _NONE) -> subprocess.Popen[bytes]:
        """Start a worker; it works when this returns. ``checkout``: whose code it has."""
        arguments = [self.address, "--nthreads", "1", "--no-nanny"]
        with self.client() as client:
            others = {*client.nthreads()}  # of which some may have ended: their number says nothing
            worker = self._start("worker", arguments, {**self.environment, **environment, "PYTHONPATH": str(checkout)})
            self.workers.append(worker)
            until = time.monotonic() + _START_SECONDS
            while not {*client.nthreads()} - others:
                if time.monotonic() > until:
                    raise TimeoutError(f"a worker of {self.address} does not start: see its log in {self.folder}")
                time.sleep(0.1)
        return worker

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A client that is not plantlog's, which waits until the scheduler is there."""
        from distributed import Client  # noqa: PLC0415
        from distributed.security import Security  # noqa: PLC0415

        ca, member = str(self.options.ca_file), str(self.options.key_file)
        security = Security(require_encryption=True, tls_ca_file=ca, tls_client_cert=member, tls_client_key=member)
        with Client(self.address, security=security, timeout=_START_SECONDS, set_as_default=False) as client:
            yield client

    def stop(self) -> None:
        """SIGKILL."""
        for process in (*self.workers, *([self.scheduler] if self.scheduler else ())):
            process.kill()
            process.wait()
        self.workers, self.scheduler = [], None

    def _start(self, program: str, arguments: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        ca, member = str(self.options.ca_file), str(self.options.key_file)
        tls = ["--protocol", "tls", "--tls-ca-file", ca, "--tls-cert", member, "--tls-key", member]
        other = ["--preload", "history.sql.sources.cluster", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        command = [str(Path(sys.executable).with_name("dask")), program, *tls, *other, "--host", "127.0.0.1"]
        with (self.folder / f"{program}-{len(self.workers)}.log").open("wb") as log:
            return subprocess.Popen(
                [*command, *arguments],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(CHECKOUT), **environment},
            )


@contextmanager
def running(
    folder: Path,
    port: int,
    workers: int,
    environment: Mapping[str, str] = _NONE,
    of_scheduler: Mapping[str, str] = _NONE,
) -> Iterator[LocalCluster]:
    """A cluster inside the block. ``environment``: of its workers; ``of_scheduler``: of its scheduler."""
    cluster = LocalCluster(folder, port, environment)
    try:
        cluster.schedule(of_scheduler)
        for _ in range(workers):
            cluster.work()
        yield cluster
    finally:
        cluster.stop()

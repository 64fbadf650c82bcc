"""A scheduler and workers of Dask over TLS, as processes, started as docs/scale.md says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.paths import CHECKOUT
from ops import certificates
from tests.peers import listens
from tests.ports import free_port
from tests.waiting import PATIENCE, until_sync


@dataclass(slots=True)
class DaskCluster:
    """Its folder has certificates and logs."""

    folder: Path
    port: int = field(default_factory=free_port)
    environment: Mapping[str, str] = field(default_factory=dict)  # of its workers
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)  # the scheduler, and its workers

    @property
    def address(self) -> str:
        """That of the scheduler."""
        return f"tls://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """Those of ``[questions]``."""
        member = str(self.folder / "certificates" / "member.pem")
        ca = str(self.folder / "certificates" / "ca.crt")
        return {"cluster": self.address, "ca_file": ca, "certificate_file": member, "key_file": member}

    def make_certificates(self) -> None:
        """Certificates of a new CA."""
        self.folder.mkdir(exist_ok=True)
        certificates.cluster_member(self.folder / "pki", self.folder / "certificates")

    def schedule(self, environment: Mapping[str, str] = MappingProxyType({})) -> subprocess.Popen[bytes]:
        """Start the scheduler, with its certificates."""
        self.make_certificates()
        scheduler = self._start("scheduler", ["--host", "127.0.0.1", "--port", str(self.port)], environment)
        until_sync(lambda: listens(self.port), show=self.log)
        return scheduler

    def work(self, checkout: Path = CHECKOUT, **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker. ``checkout``: whose code it has."""
        n = self.count()
        arguments = [self.address, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny"]
        worker = self._start("worker", arguments, {**self.environment, **environment, "PYTHONPATH": str(checkout)})
        until_sync(lambda: self.count() > n, show=self.log)
        return worker

    def count(self) -> int:
        """Number of workers that the scheduler has."""
        return int(self.ask(lambda dask_scheduler: len(dask_scheduler.workers)))

    def tasks(self) -> int:
        """Number of tasks that the scheduler has."""
        return int(self.ask(lambda dask_scheduler: len(dask_scheduler.tasks)))

    def ask(self, question: Callable[..., Any]) -> Any:
        """The answer of a function of the scheduler."""
        from distributed import Client
        from distributed.security import Security

        options = self.options
        security = Security(
            require_encryption=True,
            tls_ca_file=options["ca_file"],
            tls_client_cert=options["certificate_file"],
            tls_client_key=options["key_file"],
        )
        with Client(self.address, security=security, timeout=PATIENCE, set_as_default=False) as client:
            return client.run_on_scheduler(question)

    def log(self) -> str:
        """What they printed."""
        return "\n".join(path.read_text()[-4000:] for path in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        """SIGKILL."""
        for process in self.processes:
            process.kill()
            process.wait()

    def _start(self, program: str, arguments: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        options = self.options
        tls = ["--protocol", "tls", "--tls-ca-file", options["ca_file"]]
        tls += ["--tls-cert", options["certificate_file"], "--tls-key", options["key_file"]]
        other = ["--preload", "history.sql.sources.cluster", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        command = [str(Path(sys.executable).with_name("dask")), program, *tls, *other, *arguments]
        with (self.folder / f"{len(self.processes)}-{program}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(CHECKOUT), **environment},
            )
        self.processes.append(process)
        return process


@contextmanager
def running(
    folder: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
    workers: int = 2,
    of_scheduler: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[DaskCluster]:
    """A cluster inside the block. ``of_scheduler``: its environment."""
    cluster = DaskCluster(folder, environment=environment)
    try:
        cluster.schedule(of_scheduler)
        for _ in range(workers):
            cluster.work()
        yield cluster
    finally:
        cluster.stop()

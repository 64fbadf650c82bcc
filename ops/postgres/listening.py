"""Listening of plantlog's own database beyond loopback: there, only the reader logs in, and only with TLS."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from core.addresses import is_loopback
from core.config.https import TlsSettings
from core.config.model import Plant
from core.files import write_atomically
from core.servers.server_tls import context
from core.tls import UnusableFile

FILE = "listening.json"  # beside the cluster's folder
READERS = "hostssl plantlog plantlog_reader all scram-sha-256\n"  # of pg_hba.conf


@dataclass(frozen=True, slots=True)
class Listening:
    """``[database]`` and the files of its certificate. Kept in the state folder, as the server reads no plant.toml."""

    host: str
    certificate: str
    key: str

    @classmethod
    def of_plant(cls, plant: Plant, state: Path) -> Listening | None:
        """The listening that a plant configures; None: on loopback only."""
        if is_loopback(plant.database.host):
            return None
        certificate, key = TlsSettings.of(plant).files(state)
        return cls(plant.database.host, str(certificate), str(key))

    @classmethod
    def load(cls, path: Path) -> Listening | None:
        """The listening of a file; None: on loopback only."""
        return cls(**json.loads(path.read_text())) if path.exists() else None

    def save(self, path: Path) -> None:
        """Save it in the state folder."""
        write_atomically(path, json.dumps(asdict(self)), 0o600)

    def pem(self) -> str:
        """Certificate and key, to be one file. Raises UnusableFile."""
        certificate, key = Path(self.certificate), Path(self.key)
        context(certificate, key)
        try:
            return "".join(path.read_text() for path in dict.fromkeys((certificate, key)))
        except (OSError, UnicodeDecodeError) as error:
            raise UnusableFile(certificate, f"can't be read ({error})", "PEM") from error

    def settings(self, pem: str) -> str:
        """Settings of ``postgresql.conf``; ``pem``: the path of the file as the server sees it."""
        addresses = {"0.0.0.0": "0.0.0.0", "::": "0.0.0.0,::"}.get(self.host, f"127.0.0.1,{self.host}")
        return f"listen_addresses = '{addresses}'\nssl = on\nssl_cert_file = '{pem}'\nssl_key_file = '{pem}'\n"

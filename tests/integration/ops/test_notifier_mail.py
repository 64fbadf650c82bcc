"""Messages of the notifier by mail."""

from __future__ import annotations

from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword

from core.config.model import NotifyOptions
from tests.certificates import make, pem
from tests.database import Database
from tests.integration.ops.test_notifier import alarm, happen, ingest, notifying, recorded
from tests.ports import free_ports
from tests.waiting import PATIENCE, until

__all__ = ["ingest"]  # fixtures

PASSWORD = "a password of the mail server"


class Mailbox:
    """Mails that an SMTP server has accepted."""

    def __init__(self) -> None:
        self.mails: list[tuple[Envelope, Message]] = []
        self.refuses = 0

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        if self.refuses:
            self.refuses -= 1
            return "451 try again later"
        self.mails.append((envelope, message_from_bytes(envelope.content)))
        return "250 taken"


def _authenticated(_server: Any, _session: Any, _envelope: Any, mechanism: str, given: Any) -> AuthResult:
    right = isinstance(given, LoginPassword) and (given.login, given.password) == (b"plantlog", PASSWORD.encode())
    return AuthResult(success=right)


@pytest.fixture(params=["starttls", "tls", "none"])
def mail(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Mailbox, Controller, NotifyOptions]]:
    import ssl

    certificate, key = make(tmp_path / "mail")
    certificate = pem(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    security = request.param
    port = free_ports(1)
    box = Mailbox()
    options: dict[str, Any] = {}
    if security != "none":
        options = {"authenticator": _authenticated, "auth_required": True, "auth_require_tls": security == "starttls"}
    if security == "starttls":
        options |= {"tls_context": context, "require_starttls": True}
    if security == "tls":
        options |= {"ssl_context": context}
    controller = Controller(box, hostname="127.0.0.1", port=port, ready_timeout=PATIENCE, **options)
    (tmp_path / "password").write_text(PASSWORD)
    secret = {"smtp_username": "plantlog", "smtp_password_file": tmp_path / "password"} if security != "none" else {}
    wanted = NotifyOptions(
        smtp=f"127.0.0.1:{port}",
        smtp_security=security,
        smtp_ca_file=certificate,
        mail_from="plantlog@example.org",
        mail_to=("shift@example.org", "duty@example.org"),
        **secret,  # type: ignore[arg-type]
    )
    yield box, controller, wanted
    controller.stop(no_assert=True)


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")  # TLS is around it, from the start
async def test_mail_is_sent_over_each_kind_of_connection(
    database: Database, ingest: asyncpg.Connection[Any], mail: tuple[Mailbox, Controller, NotifyOptions]
) -> None:
    box, controller, options = mail
    await happen(ingest, alarm(7), alarm(8, value=None))
    async with notifying(database, options) as notifier:
        await until(lambda: "mail" in notifier.failing)  # no server is there yet
        box.refuses = 1
        controller.start()
        await until(lambda: recorded(ingest, 2))
        assert not notifier.failing
    # The one that was refused at first may come last.
    envelope, message = min(box.mails, key=lambda mail: str(mail[1]["Subject"]))
    assert envelope.rcpt_tos == ["shift@example.org", "duty@example.org"]
    assert message["Subject"] == "[demo] medium: area/unit2/c7 above its high limit"
    ids = await ingest.fetch("SELECT id FROM plant.notification")
    assert {m["Message-ID"] for _, m in box.mails} == {f"<{row['id']}@plantlog>" for row in ids}
    text = message.get_payload(decode=True)
    assert isinstance(text, bytes)
    assert "value     9.5 bar" in text.decode()

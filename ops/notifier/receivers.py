"""Delivery by webhook and e-mail."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import smtplib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import aiohttp

from core.config.model import NotifyOptions
from core.errors import DeliveryError, OperationError
from ops.notifier.messages import text_of


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as stored in the database."""

    id: UUID  # the same in each attempt
    created_at: datetime
    kind: str
    subject: str
    body: Mapping[str, Any]


class Receiver(Protocol):
    """A receiver of notifications."""

    target: str

    async def deliver(self, message: StoredMessage) -> None:
        """Deliver a message; return once it is accepted. Raises DeliveryError."""


class Webhook:
    """``POST`` as JSON: ``id``, ``created_at``, ``kind``, ``subject``, and the message body. 2xx means accepted."""

    target = "webhook"

    def __init__(self, url: str, secret: bytes | None, time_out: float) -> None:
        self._url = url
        self._secret = secret
        self._time_out = aiohttp.ClientTimeout(total=time_out)

    async def deliver(self, message: StoredMessage) -> None:
        """POST the message, signed if there is a secret."""
        payload = {
            "id": str(message.id),
            "created_at": message.created_at.isoformat(),
            "kind": message.kind,
            "subject": message.subject,
            **message.body,
        }
        body = json.dumps(payload).encode()
        headers = {"Content-Type": "application/json", "X-Plantlog-Id": str(message.id)}
        if self._secret is not None:
            headers["X-Plantlog-Signature"] = "sha256=" + hmac.new(self._secret, body, hashlib.sha256).hexdigest()
        try:
            async with (
                aiohttp.ClientSession(timeout=self._time_out) as session,
                session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                if not 200 <= answer.status < 300:
                    raise DeliveryError(f"HTTP {answer.status} {answer.reason}")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise DeliveryError(f"{type(error).__name__}: {error}") from error


class Mail:
    """E-mail by SMTP; its Message-ID is the message's id."""

    target = "mail"

    def __init__(self, options: NotifyOptions, password: str | None) -> None:
        self._options = options
        self._password = password
        self._host, _, port = (options.smtp or "").rpartition(":")
        self._port = int(port)

    async def deliver(self, message: StoredMessage) -> None:
        """Send the message to all addresses in ``mail_to``."""
        try:
            await asyncio.to_thread(self._send, self._compose(message))
        except (smtplib.SMTPException, OSError, ValueError) as error:
            raise DeliveryError(f"{type(error).__name__}: {error}") from error

    def _compose(self, message: StoredMessage) -> EmailMessage:
        mail = EmailMessage()
        mail["Subject"] = message.subject
        mail["From"] = self._options.mail_from
        mail["To"] = ", ".join(self._options.mail_to)
        mail["Date"] = format_datetime(message.created_at)
        mail["Message-ID"] = f"<{message.id}@plantlog>"
        mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no absence notes
        mail.set_content(text_of(message.kind, message.subject, message.body))
        return mail

    def _send(self, mail: EmailMessage) -> None:
        options = self._options
        context = ssl.create_default_context(cafile=options.smtp_ca_file)
        connection: smtplib.SMTP
        if options.smtp_security == "tls":
            connection = smtplib.SMTP_SSL(self._host, self._port, timeout=options.time_out, context=context)
        else:
            connection = smtplib.SMTP(self._host, self._port, timeout=options.time_out)
        with connection:
            if options.smtp_security == "starttls":
                connection.starttls(context=context)
            if options.smtp_username is not None and self._password is not None:
                connection.login(options.smtp_username, self._password)
            refused = connection.send_message(mail)
        if refused:
            raise smtplib.SMTPRecipientsRefused(refused)


def receivers(options: NotifyOptions) -> list[Receiver]:
    """The configured receivers. Raises OperationError if a secret cannot be read."""
    configured: list[Receiver] = []
    if options.webhook is not None:
        file = options.webhook_secret_file
        configured.append(Webhook(options.webhook, None if file is None else _secret(file).encode(), options.time_out))
    if options.smtp is not None:
        file = options.smtp_password_file
        configured.append(Mail(options, None if file is None else _secret(file)))
    return configured


def _secret(file: Path) -> str:
    try:
        secret = file.read_text().strip()
    except OSError as error:
        raise OperationError(f"[notify]: {error}") from error
    if not secret:
        raise OperationError(f"[notify]: {file} is empty")
    return secret

"""Changes of a view as email, for people: one mail an apply, with as many rows as one reads, sent from an outbox."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.serve.store import Mark, Served
from headwater.serve.stores.net import Net
from headwater.serve.stores.outbox import Answer
from headwater.serve.stores.plainvalues import told

if TYPE_CHECKING:
    from email.message import EmailMessage

SHOWN = 50
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Server:
    """Who takes our mail. `tls`: encrypted from the start; otherwise as soon as the server offers it."""

    host: str
    port: int = 25
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False


class MailMessenger:
    def __init__(self, to: str, *, sender: str, server: Server) -> None:
        self._to = to
        self._sender = sender
        self._server = server

    def compose(self, served: Served, some: Net, mark: Mark, *, restart: bool) -> Iterator[bytes]:
        lines = [f"- {json.dumps(row, ensure_ascii=False)}" for row in told(some.gone.slice(0, SHOWN))]
        lines += [f"+ {json.dumps(row, ensure_ascii=False)}" for row in told(some.here.slice(0, SHOWN))]
        rows = some.here.num_rows + some.gone.num_rows
        if rows > len(lines):
            lines.append(f"... and {rows - len(lines)} more")
        begun = "These are all rows that are there now.\n\n" if restart else ""
        subject = f"{served.view}: {rows} {'row' if rows == 1 else 'rows'} changed"
        yield f"{subject}\n{begun}{chr(10).join(lines)}\n\nUp to {mark.covers}\n".encode()

    def send(self, message_id: str, body: bytes, now_us: int) -> Answer:
        import smtplib
        from email.message import EmailMessage

        subject, _, text = body.decode().partition("\n")
        mail = EmailMessage()
        mail["Subject"], mail["From"], mail["To"] = subject, self._sender, self._to
        mail["Message-ID"] = f"<{message_id}@{self._sender.rpartition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(text)
        try:
            self._send(mail)
        except (smtplib.SMTPException, OSError) as error:
            return Answer("failed", type(error).__name__)
        return Answer("sent", "")

    def _send(self, mail: EmailMessage) -> None:
        import smtplib
        import ssl

        server = self._server
        context = ssl.create_default_context()
        connect = (
            smtplib.SMTP_SSL(server.host, server.port, timeout=TIMEOUT_S, context=context)
            if server.tls
            else smtplib.SMTP(server.host, server.port, timeout=TIMEOUT_S)
        )
        with connect as smtp:
            smtp.ehlo()
            if not server.tls and smtp.has_extn("starttls"):
                smtp.starttls(context=context)
                smtp.ehlo()
            if server.user is not None and server.password is not None:
                smtp.login(server.user, server.password)
            smtp.send_message(mail)

"""The kind `send-notice`: one mail to one owner."""

import ssl
from datetime import UTC, datetime

import aiosmtplib
from aiosmtplib import SMTPDataError, SMTPException, SMTPRecipientsRefused

from jobs.app import JobContext
from jobs.notices import SendNotice
from jobs.task import PermanentError
from supervisor.installation import Installation
from supervisor.notices.mail_server import MailServer, Security
from supervisor.notices.message import compose, one_line
from supervisor.notices.outbox import Outbox

TIMEOUT_SECONDS = 30  # for each answer; the job's own time bounds them all
MAX_QUOTED_CHARS = 300
PERMANENT = 500  # and above: SMTP's replies that another try will not change


class MailError(Exception):
    """The mail was not taken; another try may help. Holds no password."""


class Mailer:
    """Hands mails to one server. Raises `OSError` for a `ca_file` that holds no certificates."""

    def __init__(
        self, server: MailServer, *, installation: Installation, sender: str, ca_file: str, outbox: Outbox
    ) -> None:
        self._server = server
        self._installation = installation
        self._sender = sender
        self._outbox = outbox
        self._tls = ssl.create_default_context(cafile=ca_file or None)

    async def send(self, payload: SendNotice, job: JobContext) -> None:
        """Send what this job has to bring, unless an earlier attempt did.

        Raises `MailError`, and `PermanentError` where the server says that it will never take this mail.
        """
        batch = await self._outbox.waiting(job.job_id)
        if batch is None:
            return
        server = self._server
        message = compose(
            batch,
            installation=self._installation,
            sender=self._sender,
            recipient=payload.recipient,
            now=datetime.now(UTC),
        )
        try:
            await aiosmtplib.send(
                message.as_bytes(),  # as it is: given the object, the library would fold it anew
                sender=self._sender,
                recipients=[payload.recipient],
                hostname=server.host,
                port=server.port,
                username=server.user or None,
                password=server.password or None,
                use_tls=server.security is Security.TLS,
                start_tls=server.security is Security.STARTTLS,
                tls_context=self._tls,
                timeout=TIMEOUT_SECONDS,
            )
        except (SMTPException, OSError) as error:
            told = f"{server.host}:{server.port} did not take the mail: {self._safe(error)}"
            if _is_final(error):
                raise PermanentError(told) from None
            raise MailError(told) from None
        await self._outbox.sent(job.job_id)

    def _safe(self, error: Exception) -> str:
        """In one line and without the password, whatever the server quotes."""
        text = f"{type(error).__name__}: {error}"
        if self._server.password:
            text = text.replace(self._server.password, "[password]")
        return one_line(text, MAX_QUOTED_CHARS)


def _is_final(error: Exception) -> bool:
    """What a person at the settings cannot mend: the server knows no such recipient, or refuses the text."""
    match error:
        case SMTPRecipientsRefused(recipients=refused):
            return all(each.code >= PERMANENT for each in refused)
        case SMTPDataError(code=code):
            return code >= PERMANENT
        case _:
            return False

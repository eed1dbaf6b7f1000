"""The kind `call-webhook`: one signed POST."""

import asyncio
import json
import time
from datetime import UTC
from http import HTTPStatus
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError

from jobs.app import JobContext
from jobs.notices import CallWebhook
from jobs.task import PermanentError
from supervisor.installation import Installation
from supervisor.notices.message import one_line
from supervisor.notices.outbox import Batch, Outbox
from supervisor.notices.webhook_address import parse_secret, signature
from supervisor.notices.whereabouts import url_of

TIMEOUTS = urllib3.Timeout(connect=10, read=30)
MAX_QUOTED_CHARS = 300
RECIPIENT = "webhook"


class WebhookError(Exception):
    """The webhook did not take it; another try may help. Holds neither the secret nor the path."""


class Webhook:
    """One address and its secret."""

    def __init__(self, url: str, secret: str, *, installation: Installation, outbox: Outbox) -> None:
        self._url = url
        self._key = parse_secret(secret)
        self._installation = installation
        self._outbox = outbox
        proxy = getproxies().get(urlsplit(url).scheme)
        direct = not proxy or proxy_bypass(urlsplit(url).hostname or "")
        self._http = urllib3.PoolManager() if direct else urllib3.ProxyManager(str(proxy))

    async def call(self, payload: CallWebhook, job: JobContext) -> None:
        """Bring what this job has to bring, unless an earlier attempt did. Raises `WebhookError`."""
        del payload
        batch = await self._outbox.waiting(job.job_id)
        if batch is None:
            return
        body = _body(batch, self._installation)
        status = await asyncio.to_thread(self._post, f"msg_{batch.id_for(RECIPIENT)}", body)
        if status == HTTPStatus.GONE:
            raise PermanentError("the webhook answered 410: it wants no more")
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            raise WebhookError(f"the webhook answered {status}: WORKER_WEBHOOK_URL must name it directly")
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            raise WebhookError(f"the webhook answered {status}")
        await self._outbox.sent(job.job_id)

    def _post(self, message_id: str, body: bytes) -> int:
        now = int(time.time())
        headers = {
            "content-type": "application/json",
            "user-agent": "oomph",
            "webhook-id": message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(self._key, message_id, now, body),
        }
        try:
            answer = self._http.request(
                "POST",
                self._url,
                body=body,
                headers=headers,
                timeout=TIMEOUTS,
                redirect=False,
                retries=False,
                preload_content=False,  # what it says is not read: it may say for ever
            )
            answer.close()
        except (HTTPError, OSError) as error:
            raise WebhookError(f"the webhook did not answer: {self._safe(error)}") from None
        return answer.status

    def _safe(self, error: Exception) -> str:
        """In one line, without what is secret in an address: its path and query."""
        parts = urlsplit(self._url)
        text = f"{type(error).__name__}: {error}"
        for secret in (parts.query, parts.path.strip("/")):
            if secret:
                text = text.replace(secret, "[...]")
        return one_line(text, MAX_QUOTED_CHARS)


def _body(batch: Batch, installation: Installation) -> bytes:
    """The same for every try."""
    notices = [
        {
            "id": notice.id,
            "at": notice.at.astimezone(UTC).isoformat(),
            "event": notice.event,
            "severity": notice.severity,
            "subject": notice.subject,
            "body": notice.body,
            "url": url_of(notice, installation),
        }
        for notice in batch.notices
    ]
    first = notices[0]["at"]
    data = {
        "installation": installation.name,
        "url": installation.notices_url,
        "total": batch.total,
        "notices": notices,
    }
    return json.dumps({"type": "oomph.notices", "timestamp": first, "data": data}).encode()

"""What a worker needs to send notices, by its settings: handlers for its app, and a dispatcher."""

import logging
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from jobs.app import App, Handler
from jobs.database import Database
from jobs.extras import how_to_install
from jobs.notices import CALL_WEBHOOK, SEND_NOTICE, CallWebhook, SendNotice
from jobs.task import Pool
from supervisor.installation import Installation
from supervisor.notices.dispatch import Addressee, Dispatcher
from supervisor.notices.mail_server import is_address, parse_smtp_url
from supervisor.notices.outbox import Outbox
from supervisor.settings import Settings, SettingsError

NEEDED = ("aiosmtplib", "urllib3")

log = logging.getLogger("oomph.notices")


@dataclass(frozen=True, slots=True)
class Sending:
    """`app` is the worker's own and the kinds that bring notices."""

    app: App
    dispatcher: Dispatcher


def sending(settings: Settings, app: App, database: Database) -> Sending | None:
    """None for a worker without the pool `system`, which says so. Raises `SettingsError`."""
    if Pool.SYSTEM not in settings.worker_pools:
        log.warning("this worker sends no notices, because its WORKER_POOLS lack system; another one must")
        return None
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise SettingsError(
            f"WORKER_OWNERS and WORKER_WEBHOOK_URL need {' and '.join(missing)}: {how_to_install('notices')}"
        )
    outbox = Outbox(database)
    installation = Installation(settings.worker_installation, settings.worker_page_url)
    handlers, addressees = [], []
    if settings.worker_owners:
        handlers.append(_mail(settings, installation, outbox))
        addressees += [
            Addressee("mail", owner, SEND_NOTICE, SendNotice(recipient=owner)) for owner in settings.worker_owners
        ]
    if settings.worker_webhook_url.get_secret_value():
        from supervisor.notices.webhook import RECIPIENT, Webhook

        url, secret = settings.worker_webhook_url, settings.worker_webhook_secret
        webhook = Webhook(url.get_secret_value(), secret.get_secret_value(), installation=installation, outbox=outbox)
        handlers.append(Handler(CALL_WEBHOOK, webhook.call))
        addressees.append(Addressee("webhook", RECIPIENT, CALL_WEBHOOK, CallWebhook()))
    try:
        whole = App(handlers, include=[app])
    except ValueError as error:
        raise SettingsError(
            f"WORKER_APP={settings.worker_app} has a kind that is called like one of Oomph's own: {error}"
        ) from error
    digest = timedelta(seconds=settings.worker_notice_digest_seconds)
    return Sending(whole, Dispatcher(database, addressees, digest))


def _mail(settings: Settings, installation: Installation, outbox: Outbox) -> Handler[Any]:
    from supervisor.notices.mail import Mailer

    server = parse_smtp_url(settings.smtp_url.get_secret_value())
    sender = settings.smtp_from or (server.user if is_address(server.user) else settings.worker_owners[0])
    try:
        mailer = Mailer(server, installation=installation, sender=sender, ca_file=settings.smtp_ca_file, outbox=outbox)
    except OSError as error:
        raise SettingsError(
            f"SMTP_CA_FILE={settings.smtp_ca_file}: must be a file of certificates in PEM ({error.strerror or error})"
        ) from error
    return Handler(SEND_NOTICE, mailer.send)

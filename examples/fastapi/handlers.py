"""The work, and the app that a worker runs."""

import logging

from database import Account, sessions
from sqlalchemy import func
from tasks import SEND_WELCOME, SendWelcome

from jobs import App, Handler, JobContext, PermanentError

log = logging.getLogger("accounts")


async def send_welcome(payload: SendWelcome, job: JobContext) -> None:
    """Welcome an account, once: what is written here commits together with the success of the job, or not at all."""
    async with sessions.begin() as session:
        account = await session.get(Account, payload.account_id)
        if account is None:
            raise PermanentError(f"there is no account {payload.account_id}")
        log.info("Welcome, %s!", account.email)
        account.welcomed_at = func.now()
        await session.flush()
        await job.complete_in(session)


def production() -> App:
    return App(handlers=[Handler(SEND_WELCOME, send_welcome)])

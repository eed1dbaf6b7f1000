"""A mail of some notices, as plain text. Pure.

Subjects and bodies hold names of kinds, hosts and messages of errors, all of which anybody may have chosen.
"""

from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from supervisor.installation import Installation
from supervisor.notices.outbox import Batch, Notice
from supervisor.notices.whereabouts import what_to_do

MAX_SUBJECT_CHARS = 150
TEXT = SMTP.clone(cte_type="7bit")  # which every server takes
# The standard allows 998 characters. At the usual 78, Python folds a subject before its first word, which some readers
# then show with a blank. The text keeps to 78.
HEADERS = TEXT.clone(max_line_length=900)
WORST_FIRST = ("critical", "warning", "info")


def compose(batch: Batch, *, installation: Installation, sender: str, recipient: str, now: datetime) -> EmailMessage:
    """The mail to one owner. Its Message-ID is the same however often it is made."""
    message = EmailMessage(policy=TEXT)
    message.set_content(_text(batch, installation), charset="utf-8")
    message.policy = HEADERS
    message["From"] = sender
    message["To"] = recipient
    message["Subject"] = _subject(batch, installation)
    message["Date"] = format_datetime(now)
    message["Message-ID"] = f"<oomph.{batch.id_for(recipient)}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # nobody's absence is answered to it
    return message


def one_line(text: str, limit: int) -> str:
    """`text` as it can stand in a header: no line breaks or other control characters, bounded."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}\N{HORIZONTAL ELLIPSIS}"


def _subject(batch: Batch, installation: Installation) -> str:
    worst = min(batch.notices, key=lambda notice: WORST_FIRST.index(notice.severity))
    count = f"{batch.total} notices, first: " if batch.total > 1 else ""
    tag = f"oomph {installation.name}".rstrip()
    return one_line(f"[{tag}] {count}{worst.subject}", MAX_SUBJECT_CHARS)


def _text(batch: Batch, installation: Installation) -> str:
    parts = [] if batch.total == 1 else [f"There are {batch.total} notices."]
    parts += [_told(notice, installation) for notice in batch.notices]
    if more := batch.total - len(batch.notices):
        parts.append(f"And {more} more.")
    parts.append("`oomph notices list` shows them all, `oomph notices read --all` marks them as read.")
    if installation.page_url:
        parts.append(f"All notices: {installation.notices_url}")
    return "\n\n".join(parts) + "\n"


def _told(notice: Notice, installation: Installation) -> str:
    head = f"{notice.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, {notice.severity}, notice {notice.id}"
    lines = [one_line(line, len(line)) if line.strip() else "" for line in notice.body.splitlines()]
    told = "\n".join([head, one_line(notice.subject, 500), "", *lines])
    hint = what_to_do(notice, installation)
    return f"{told}\n\n{hint}" if hint else told

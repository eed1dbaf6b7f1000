"""Mails whose only text is HTML, or that hold attachments only, as kreuzberg reads them without loss.

It takes the tags out of HTML in a mail, and so writes the words of two paragraphs as one; and of a mail without text it
gives the attachments, as base64. Any other mail it reads well.
"""

import base64
from collections.abc import Callable
from email.errors import MessageError
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

MAX_MAIL_BYTES = 32 << 20  # parsed here, a mail takes a few times its size; a larger one goes to kreuzberg as it is


def spell_out_mail(path: Path, target: Path, read_html: Callable[[str], str]) -> bool:
    """Write the mail with its HTML as plain text to `target`; False where it has plain text, or is not understood."""
    if path.stat().st_size > MAX_MAIL_BYTES:
        return False
    try:
        with path.open("rb") as file:
            mail = BytesParser().parse(file)
        shown = [part for part in mail.walk() if not part.is_multipart() and not part.get_filename()]
        if any(_text(part).strip() for part in shown if part.get_content_type() == "text/plain"):
            return False
        pages = [_text(part) for part in shown if part.get_content_type() == "text/html"]
    except (MessageError, LookupError, ValueError, RecursionError):
        return False
    text = "\n\n".join(read_html(page) for page in pages if page.strip())
    for name in ("MIME-Version", "Content-Type", "Content-Transfer-Encoding", "Content-Disposition"):
        del mail[name]
    mail["MIME-Version"] = "1.0"
    mail["Content-Type"] = "text/plain; charset=utf-8"
    mail["Content-Transfer-Encoding"] = "base64"
    mail.set_payload(base64.encodebytes(text.encode()).decode("ascii"))
    target.write_bytes(mail.as_bytes())
    return True


def _text(part: Message) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    try:
        return content.decode(part.get_content_charset("utf-8"), "replace")
    except LookupError:
        return content.decode("utf-8", "replace")

"""A webhook's address, its secret, and the signature that Standard Webhooks specifies. Pure.

The signature is over `id.timestamp.body`: who knows the secret knows that we wrote this, and when, and whether it has
seen that id before.
"""

import base64
import binascii
import hashlib
import hmac
from urllib.parse import urlsplit

SECRET_PREFIX = "whsec_"  # noqa: S105  (what tells a secret from other words, not one)
SECRET_BYTES = (24, 64)  # what the specification allows


def parse_secret(secret: str) -> bytes:
    """The key in `whsec_...`. Raises `ValueError`, which does not quote it."""
    shortest, longest = SECRET_BYTES
    try:
        if not secret.startswith(SECRET_PREFIX):
            raise ValueError
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        if not shortest <= len(key) <= longest:
            raise ValueError
    except (ValueError, binascii.Error):
        raise ValueError(
            f"WORKER_WEBHOOK_SECRET must be {SECRET_PREFIX} and then {shortest} to {longest} random bytes in base64, "
            f'such as "{SECRET_PREFIX}$(openssl rand -base64 32)"'
        ) from None
    return key


def check_url(url: str) -> None:
    """Raise `ValueError`, which does not quote it, unless this is an address to call."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or "@" in urlsplit(url).netloc or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("WORKER_WEBHOOK_URL must read like https://host/path, in ASCII and without a password")


def signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()

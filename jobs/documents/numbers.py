"""Whole numbers in environment variables."""

import os


def whole_number(name: str, default: int, *, least: int, most: int | None = None) -> int:
    """The variable's number; `default` where it is not set or empty. Raises `ValueError` that names it."""
    given = os.environ.get(name) or str(default)
    if not given.isascii() or not given.isdigit() or int(given) < least or (most is not None and int(given) > most):
        allowed = f"at least {least}" if most is None else f"from {least:,} to {most:,}"
        raise ValueError(f"{name}={given}: a whole number, {allowed}, is allowed")
    return int(given)

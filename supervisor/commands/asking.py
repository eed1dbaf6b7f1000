"""Questions to whoever sits at the terminal, on stderr; where there is no terminal nothing is asked."""

import sys

from supervisor.errors import CommandError


def can_be_asked() -> bool:
    """Whether somebody reads what is asked, and can answer."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> str:
    """The answer, in one line. Raises `CommandError` where there is none any more: Ctrl-D, a terminal that has gone."""
    sys.stderr.write(f"{question} ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        raise CommandError("nothing was done: a question was not answered")
    return answer.strip()


def agrees(question: str) -> bool:
    """Whether the answer is yes."""
    return ask(f"{question} [y/N]").lower() in ("y", "yes")

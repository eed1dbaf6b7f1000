"""Forms that were sent already: each is taken once, however often it is sent.

Two clicks send a form twice, and the second may well arrive while the first is acted upon.
"""

import secrets
from collections import OrderedDict

ONCE_FIELD = "once"
MAX_KEPT = 1_000  # of one process: the forms of hours
MAX_WORD_CHARS = 40


def new_word() -> str:
    """What a form carries that is made now."""
    return secrets.token_urlsafe(12)


class Sent:
    """The words of the last forms that were taken."""

    def __init__(self) -> None:
        self._words: OrderedDict[str, None] = OrderedDict()

    def take(self, word: str) -> bool:
        """Whether this is the first time. A form without a word is one of a program, which knows what it sends."""
        word = word[:MAX_WORD_CHARS]
        if not word:
            return True
        if word in self._words:
            return False
        self._words[word] = None
        while len(self._words) > MAX_KEPT:
            self._words.popitem(last=False)
        return True

    def give_back(self, word: str) -> None:
        """Nothing was done: it may be sent again."""
        self._words.pop(word[:MAX_WORD_CHARS], None)

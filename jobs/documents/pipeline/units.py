"""What the size of a chunk is counted in: characters, or tokens.

A tokenizer belongs to one model, and its vocabulary is megabytes that somebody must fetch, so none is used unless it is
given. Without, tokens are estimated. Of three tokenizers in wide use (those of cl100k, Claude 2 and DeepSeek 3), the
largest count for English, German, French, Chinese, Japanese, Korean, Markdown, code and CSV was at most an eighth above
the estimate, for Russian and Arabic a quarter, for Hindi two fifths: leave that much room below a model's limit.

An exact unit is one
function, here of the library `tokenizers`, which reads a local file:

    tokenizer = Tokenizer.from_file("tokenizer.json")
    unit = lambda text: [start for start, _ in tokenizer.encode(text, add_special_tokens=False).offsets]
"""

import re
from collections.abc import Callable, Sequence

Unit = Callable[[str], Sequence[int]]  # a text to the offsets at which its units begin, ascending

# Pieces of words as long as tokens are on the whole: shorter beyond ASCII, a character each where words are seldom
# in a vocabulary.
_TOKEN = re.compile(
    r"[A-Za-z]{1,6}|[0-9]{1,3}"
    r"|[\u0590-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]"
    r"|[^\W\d_]{1,2}|[^\s\w]|[\d_]|\n+|[ \t]{2,}"
)


def characters(text: str) -> Sequence[int]:
    """A character is a unit."""
    return range(len(text))


def tokens(text: str) -> Sequence[int]:
    """Where the tokens of a text would about begin."""
    return [found.start() for found in _TOKEN.finditer(text)]


UNITS: dict[str, Unit] = {"characters": characters, "tokens": tokens}

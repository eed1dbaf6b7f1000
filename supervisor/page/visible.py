"""Text of others, made safe to look at: nothing in it is obeyed, hidden, or longer than a page can bear.

Templates escape what they print; this is about what remains. A right-to-left override makes `gpj.exe` read as
`exe.jpg`, a zero-width character makes two equal names of two different ones, and control characters do nothing that
anybody wants. Each is shown as what it is.
"""

import json
import unicodedata
from typing import Any

MAX_SHOWN_CHARS = 20_000  # of one text in a page: what is longer can be had whole, as a file
CUT = "\N{HORIZONTAL ELLIPSIS}"

_KEPT = frozenset("\n\t")
# Control, format, surrogate, private and unassigned characters, separators of lines and paragraphs.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f")  # letters and marks that draw nothing


def visible(text: str) -> str:
    """`text`, with a mark such as `⟨U+202E⟩` for each character that would not be seen as one, and bounded."""
    cut = text[:MAX_SHOWN_CHARS]
    if not (cut.isascii() and cut.isprintable()):
        cut = "".join(char if _is_seen(char) else f"\u27e8U+{ord(char):04X}\u27e9" for char in cut)
    return cut if len(text) <= MAX_SHOWN_CHARS else cut + CUT


def short(text: object, length: int = 120) -> str:
    """The first line of a text that is not empty, cut to `length` characters."""
    lines = [line.strip() for line in str(text)[:MAX_SHOWN_CHARS].strip().splitlines()] or [""]
    more = len(lines) > 1 or len(lines[0]) > length
    return lines[0][:length].rstrip() + (f" {CUT}" if more else "")


def as_json(value: Any) -> str:
    """JSON, as people read it; on one line where it is nested too deeply for anything else."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return json.dumps(value, ensure_ascii=False)


def _is_seen(char: str) -> bool:
    if char in _KEPT or char.isascii():
        return char in _KEPT or char.isprintable()
    return unicodedata.category(char) not in _UNSEEN and char not in _FILLERS

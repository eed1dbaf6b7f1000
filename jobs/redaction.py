"""Secret values of payloads, kept out of what is shown, stored and logged.

Readers `mask` a payload by the paths that a worker has published with its declaration. A worker has a `Redactor` for
each job whose kind has secrets: it takes the values of that job out of texts, before they are cut to length. What it
finds are the values as they are, as JSON or Python writes them, and percent-encoded; in any other encoding, or with a
piece cut off by the handler, they are not found. A value of less than 4 characters is left: without it no text would
be readable.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote
from weakref import WeakValueDictionary

MASK = "**********"  # as pydantic writes a secret
ELEMENT = "*"  # a step of a path: whatever element of a list or value of an object
ANYWHERE = "**"  # the first step of a path: whatever has the name that follows, at any depth
SHORTEST = 4  # characters of a value that is taken out of texts
MAX_VALUES = 1_000  # of one payload; with more of them, its job's texts are withheld
MAX_DEPTH = 50  # of a payload; what lies deeper is taken for secret

# pydantic shows what it refuses, cut in its middle, so that no search would find it.
_INPUT = re.compile(r"input_value=.*?, input_type=\w+\]", re.DOTALL)
_LINE = re.compile(r"[^\n]+")

Hide = Callable[[Any], Any]
Path = tuple[str, ...]


def mask(payload: Any, paths: Sequence[str] | None) -> Any:
    """`payload` with its secret values hidden.

    `paths` None is a kind that no worker has declared yet: nobody knows which of its fields are secret, so all are
    hidden. Where a payload does not have the shape that a path expects, because SQL wrote it or an older release, what
    stands in the way is hidden, and whatever has the name of a missing field at any depth, however it is spelt.
    """
    if paths is None:
        return dict.fromkeys(payload, MASK) if isinstance(payload, dict) else MASK
    return _hidden(payload, paths, lambda value: None if value is None else MASK)


def redactor(payload: str, paths: Sequence[str]) -> "Redactor":
    """The redactor of one job, from its payload's JSON text. Never raises."""
    if not paths:
        return PLAIN
    found: list[str] = []
    try:
        _hidden(json.loads(payload), paths, lambda value: found.extend(_values(value)))
        return Redactor(found) if found else PLAIN
    except (ValueError, RecursionError):  # a number, a text or a depth that no validation accepts either
        return Redactor(())


class Redactor:
    """Takes the secret values of one job out of texts. One without values withholds every line."""

    def __init__(self, values: Collection[str]) -> None:
        few = len(values) <= MAX_VALUES
        self._forms = sorted({form for value in values for form in _forms(value)} if few else (), key=len, reverse=True)
        self.withholds = not values or not few
        self.longest = len(self._forms[0]) if self._forms else 0
        _alive[id(self)] = self

    def __bool__(self) -> bool:
        """Whether it changes any text."""
        return True

    def hold(self) -> None:
        """Let `redact` know these values as long as the present context, or any copy of it, is in use."""
        _held.set(self)

    def text(self, text: str) -> str:
        """`text` without the values, and without what a validation error shows of its input."""
        if self.withholds:
            return _LINE.sub(MASK, text)
        if "input_value=" in text:
            text = _INPUT.sub(f"input_value={MASK}]", text)
        for form in self._forms:
            text = text.replace(form, MASK)
        return text

    def json(self, text: str) -> str:
        """JSON text whose strings, names and numbers do not hold the values."""
        return text if self.text(text) == text else json.dumps(self.value(json.loads(text)), ensure_ascii=False)

    def value(self, value: Any) -> Any:
        """The same for a value that JSON could hold."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(name): self.value(item) for name, item in value.items()}
            case list():
                return [self.value(item) for item in value]
            case int() | float() if not isinstance(value, bool) and json.dumps(value) in self._forms:
                return MASK
        return value


class _Plain(Redactor):
    """Of a job without secrets: everything stays as it is."""

    def __init__(self) -> None:
        self.longest = 0

    def __bool__(self) -> bool:
        return False

    def hold(self) -> None:
        """Nothing to know."""

    def text(self, text: str) -> str:
        return text


_alive: "WeakValueDictionary[int, Redactor]" = WeakValueDictionary()
_held: ContextVar[Redactor | None] = ContextVar("oomph_redactor", default=None)
PLAIN: Redactor = _Plain()


def redact(text: str) -> str:
    """`text` without the secrets of all jobs that run in this process, or of which a task or a thread is left."""
    if _alive:
        for reference in _alive.valuerefs():  # a copy, made in one step: other threads may add to it
            alive = reference()
            # Lines of others are not withheld for the sake of a job with too many values.
            if alive is not None and (not alive.withholds or alive is _held.get()):
                text = alive.text(text)
    return text


def _hidden(payload: Any, paths: Iterable[str], hide: Hide) -> Any:
    split = [tuple(path.split(".")) for path in paths]
    missed = {_bare(path[-1]) for path in split if path[0] == ANYWHERE}
    payload = _along(payload, [path for path in split if path[0] != ANYWHERE], 0, hide, missed)
    return _by_name(payload, missed, hide) if missed else payload


def _along(value: Any, paths: list[Path], depth: int, hide: Hide, missed: set[str]) -> Any:
    """Hide what the paths, of which `depth` steps are done, lead to. Fields that are not there join `missed`."""
    if any(len(path) == depth for path in paths):
        return hide(value)
    if isinstance(value, dict):
        lost = [path for path in paths if path[depth] != ELEMENT and path[depth] not in value]
        missed.update(_bare(step) for path in lost for step in path[depth:] if step != ELEMENT)
        return {
            name: _along(item, below, depth + 1, hide, missed) if below else item
            for name, item in value.items()
            for below in [[path for path in paths if path[depth] in (name, ELEMENT)]]
        }
    if isinstance(value, list) and all(path[depth] == ELEMENT for path in paths):
        return [_along(item, paths, depth + 1, hide, missed) for item in value] if paths else value
    return hide(value) if paths else value


def _by_name(value: Any, names: Collection[str], hide: Hide, depth: int = 0) -> Any:
    if not isinstance(value, dict | list):
        return value
    if depth == MAX_DEPTH:
        return hide(value)
    if isinstance(value, list):
        return [_by_name(item, names, hide, depth + 1) for item in value]
    return {
        name: hide(item) if _bare(name) in names else _by_name(item, names, hide, depth + 1)
        for name, item in value.items()
    }


def _bare(name: str) -> str:
    """The same for `api_key`, `apiKey` and `Api-Key`."""
    return "".join(filter(str.isalnum, name)).casefold()


def _values(value: Any) -> Iterator[str]:
    """The texts and numbers in a secret value."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as found:
                waiting += found.values()
            case list() as found:
                waiting += found
            case str() as found:
                yield found
            case bool() | None:
                pass
            case found:
                yield json.dumps(found)


def _forms(value: str) -> Iterator[str]:
    """The value as it may stand in a text, also where each of its lines is one of a log."""
    for part in {value.strip(), *map(str.strip, value.splitlines())}:
        written = [json.dumps(part), json.dumps(part, ensure_ascii=False), repr(part), ascii(part)]
        for form in {part, *(text[1:-1] for text in written), repr(part.encode())[2:-1], quote(part, safe="")}:
            if len(part) >= SHORTEST and form not in MASK:
                yield form

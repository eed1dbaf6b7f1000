"""Which fields of a payload are secret, as paths into its JSON: found in its types, once for each declaration.

A path names fields, with `*` for the elements of a list or the values of an object: `card.number`, `tokens.*`. A field
with aliases has a path for each of its names, because a payload that SQL wrote may use any of them.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, is_dataclass
from functools import cache
from itertools import product
from types import UnionType
from typing import Annotated, Any, ForwardRef, Union, get_args, get_origin, get_type_hints

from pydantic import AliasChoices, AliasPath, BaseModel, RootModel, Secret, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import to_json

from jobs.redaction import ANYWHERE, ELEMENT, MASK

SECRET_TYPES = (SecretStr, SecretBytes, Secret)

Step = tuple[str, ...]  # the names that lead on, a field's own first
_ELEMENT: Step = (ELEMENT,)


@dataclass(frozen=True, slots=True)
class _Field:
    """One field at any depth. `is_open` where its type does not tell what it may hold."""

    steps: tuple[Step, ...]
    is_secret: bool = False
    is_open: bool = False
    is_loop: bool = False


@cache
def secret_paths(payload_type: type[BaseModel], redact: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The paths of fields of pydantic's secret types, and of those that `redact` names.

    Raises `ValueError` where a path of `redact` leads to no field, `TypeError` for a secret as the key of an object.
    """
    fields = list(_fields(payload_type))
    secret = {field.steps for field in fields if field.is_secret}
    for path in redact:
        named = [steps for field in fields if (steps := _named(field, path.split(".")))]
        if not named:
            raise ValueError(
                f"redact={path!r} names no field of {payload_type.__name__}; write card.number for a field of a field, "
                "tokens.* for the elements of a list or the values of an object"
            )
        secret.update(named)
    paths = {tuple(map(_plain, names)) for steps in secret for names in product(*steps)}
    if any(field.is_loop for field in fields):  # a model that holds itself, so that no list of paths is complete
        paths |= {(ANYWHERE, _last_name(path)) for path in paths}
    return tuple(sorted(".".join(path) for path in paths))


def _last_name(path: Sequence[str]) -> str:
    return next((step for step in reversed(path) if step != ELEMENT), ELEMENT)


def revealed_json(payload: BaseModel) -> str:
    """The payload as JSON with the values of its secrets, for which pydantic writes asterisks.

    Raises `ValueError` where some stay: a secret that another one holds, for instance.
    """
    revealed = _revealed(payload.model_dump(), payload.model_dump(mode="json"))
    bytes_mode = payload.model_config.get("ser_json_bytes", "utf8")
    text = to_json(revealed, bytes_mode=bytes_mode, inf_nan_mode="strings").decode()
    if MASK in text:
        raise ValueError(f"{type(payload).__name__}: {MASK} stands in the payload where a secret would be lost")
    return text


def _revealed(value: Any, dumped: Any) -> Any:
    """`dumped`, which is `value` as JSON, with the secrets that `value` holds."""
    match value, dumped:
        case ((SecretStr() | SecretBytes() | Secret()), _):
            return value.get_secret_value()
        case dict(), dict():  # JSON may write the keys otherwise, but in the same order
            return {name: _revealed(*pair) for name, *pair in zip(dumped, value.values(), dumped.values(), strict=True)}
        case ((list() | tuple() | deque()), list()):
            return [_revealed(*pair) for pair in zip(value, dumped, strict=True)]
        case ((set() | frozenset()), list()) if any(isinstance(item, SECRET_TYPES) for item in value):
            return [_revealed(item, item) for item in value]  # in an order of its own
        case _:
            return dumped


def _fields(annotation: Any, steps: tuple[Step, ...] = (), within: frozenset[Any] = frozenset()) -> Iterator[_Field]:
    """`annotation` itself, and every field below it."""
    kind, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if kind is Annotated:
        yield from _fields(arguments[0], steps, within)
    elif kind in (Union, UnionType):
        for argument in arguments:
            yield from _fields(argument, steps, within)
    elif (named := getattr(kind, "__value__", None) or getattr(kind, "__supertype__", None)) is not None:
        if kind in within:
            yield _Field(steps, is_open=True, is_loop=True)
        else:  # `type Name = ...` and NewType
            yield from _fields(named, steps, within | {kind})
            yield from _elements(kind, arguments, steps, within)
    elif isinstance(kind, type) and issubclass(kind, SECRET_TYPES):
        yield _Field(steps, is_secret=True)
    elif isinstance(kind, type) and (hints := _members(kind)) is not None:
        yield _Field(steps, is_open=kind in within, is_loop=kind in within)
        if kind not in within:
            for names, member in hints:
                yield from _fields(member, (*steps, names) if names else steps, within | {kind})
    else:
        yield _Field(steps, is_open=not arguments and _is_open(kind))
        yield from _elements(kind, arguments, steps, within)


def _elements(
    kind: Any, arguments: tuple[Any, ...], steps: tuple[Step, ...], within: frozenset[Any]
) -> Iterator[_Field]:
    for position, argument in enumerate(arguments):
        is_key = position == 0 and isinstance(kind, type) and issubclass(kind, Mapping)
        for field in _fields(argument, (*steps, _ELEMENT), within):
            if is_key and field.is_secret:
                raise TypeError(f"a secret cannot be the key of an object, as in {kind.__name__}{list(arguments)}")
            if not is_key:
                yield field


def _members(kind: type) -> list[tuple[Step, Any]] | None:
    """The fields of a model, dataclass, TypedDict or NamedTuple with their types; None for any other type."""
    if issubclass(kind, BaseModel):
        if not kind.__pydantic_complete__:
            kind.model_rebuild()
        is_root = issubclass(kind, RootModel)
        return [(() if is_root else _names(name, field), field.annotation) for name, field in kind.model_fields.items()]
    if is_dataclass(kind) or hasattr(kind, "__total__"):
        return [((name,), hint) for name, hint in get_type_hints(kind).items()]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return [(_ELEMENT, hint) for hint in get_type_hints(kind).values()]
    return None


def _names(name: str, field: FieldInfo) -> Step:
    names = [name]
    for alias in (field.alias, field.validation_alias, field.serialization_alias):
        for choice in alias.choices if isinstance(alias, AliasChoices) else [alias]:
            first = choice.path[0] if isinstance(choice, AliasPath) else choice  # below which all is taken for it
            if isinstance(first, str):
                names.append(first)
    return tuple(dict.fromkeys(names))


def _named(field: _Field, names: Sequence[str]) -> tuple[Step, ...]:
    """The steps to what `names` mean, if that is this field or something below a field that may hold anything."""
    more = len(names) - len(field.steps)
    if more < 0 or (more > 0 and not field.is_open):
        return ()
    found: list[Step] = []
    for name, step in zip(names, field.steps, strict=False):
        if step != _ELEMENT and name not in step:
            return ()
        found.append((name,) if step == _ELEMENT else step)
    return (*found, *((name,) for name in names[len(found) :]))


def _is_open(kind: Any) -> bool:
    if kind in (Any, object) or isinstance(kind, ForwardRef | str):
        return True
    holds = isinstance(kind, type) and issubclass(kind, Mapping | Sequence | AbstractSet)
    return holds and not issubclass(kind, str | bytes)


def _plain(name: str) -> str:
    """A name as it stands in a path; one that would be read as two is every name."""
    return ELEMENT if not name or "." in name or "\n" in name else name

"""Secret fields are found in a payload's types, survive the enqueue, and are hidden from readers."""

import json
from collections import deque
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Any, Literal, NamedTuple, NewType
from uuid import UUID

import psycopg
import pytest
from pydantic import AliasChoices, AliasPath, ConfigDict, Field, Json, RootModel, Secret, SecretBytes, SecretStr
from typing_extensions import TypeAliasType, TypedDict

from jobs import Payload, Pool, Task, enqueue, enqueue_many, reports
from jobs.redaction import MASK, mask
from jobs.store import JobStore
from tests.jobs.lab import hire

Look = psycopg.Connection[tuple[object, ...]]


class Card(Payload):
    number: SecretStr
    name: str = ""


class Voucher(Payload):
    code: SecretStr


@dataclass
class Login:
    user: str
    password: SecretStr


class Keys(TypedDict):
    private: SecretStr
    public: str


class Pair(NamedTuple):
    user: str
    token: SecretStr


class Tokens(RootModel[list[SecretStr]]):
    pass


Pin = NewType("Pin", SecretStr)
Alias = TypeAliasType("Alias", list[SecretStr])


class Everything(Payload):
    plain: str
    when: timedelta
    token: SecretStr
    key: SecretBytes
    born: Secret[date]
    card: Card | Voucher | None
    cards: list[Card]
    by_id: dict[UUID, SecretStr]
    either: int | SecretStr
    several: tuple[int, SecretStr]
    any_order: frozenset[SecretStr]
    line: deque[SecretStr]
    login: Login
    keys: Keys
    pair: Pair
    tokens: Tokens
    pin: Pin
    named: Alias
    noted: Annotated[SecretStr, Field(description="noted")]
    nothing: SecretStr | None = None


GIVEN = Everything(
    plain="plain",
    when=timedelta(minutes=90),
    token=SecretStr("token-value"),
    key=SecretBytes("schl\u00fcssel".encode()),
    born=Secret(date(2001, 2, 3)),
    card=Card(number=SecretStr("4111"), name="Ada"),
    cards=[Card(number=SecretStr("4112")), Card(number=SecretStr("4113"))],
    by_id={UUID(int=1): SecretStr("one"), UUID(int=2): SecretStr("two")},
    either=SecretStr("either"),
    several=(1, SecretStr("second")),
    any_order=frozenset({SecretStr("a"), SecretStr("b")}),
    line=deque([SecretStr("in a row")]),
    login=Login("ada", SecretStr("hunter2")),
    keys={"private": SecretStr("priv"), "public": "pub"},
    pair=Pair("ada", SecretStr("pair-token")),
    tokens=Tokens([SecretStr("root")]),
    pin=Pin(SecretStr("1234")),
    named=[SecretStr("named")],
    noted=SecretStr("annotated"),
)
EVERYTHING = Task(kind="everything", payload_type=Everything, pool=Pool.SYSTEM)


def paths(*fields: tuple[str, Any], redact: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Of a payload with these fields."""
    model = type("Given", (Payload,), {"__annotations__": dict(fields), "__module__": __name__})
    return Task(kind="given", payload_type=model, pool=Pool.SYSTEM, redact=redact).secret_paths


def test_secrets_are_found_wherever_a_type_can_hold_them() -> None:
    assert EVERYTHING.secret_paths == (
        "any_order.*",
        "born",
        "by_id.*",
        "card.code",
        "card.number",
        "cards.*.number",
        "either",
        "key",
        "keys.private",
        "line.*",
        "login.password",
        "named.*",
        "noted",
        "nothing",
        "pair.*",
        "pin",
        "several.*",
        "token",
        "tokens.*",
    )


def test_a_kind_without_secrets_has_none() -> None:
    assert paths(("a", int), ("b", list[dict[str, Any]]), ("c", Literal["x", 1] | None), ("d", Json[list[int]])) == ()


class Tree(Payload):
    token: SecretStr = SecretStr("")
    trees: "tuple[Tree, ...]" = ()


def test_a_model_that_holds_itself_is_searched_at_any_depth() -> None:
    found = Task(kind="tree", payload_type=Tree, pool=Pool.SYSTEM).secret_paths
    assert found == ("**.token", "token")
    tree = {"token": "a", "trees": [{"token": "b", "trees": [{"token": "c", "trees": []}]}]}
    masked = {"token": MASK, "trees": [{"token": MASK, "trees": [{"token": MASK, "trees": []}]}]}
    assert mask(tree, found) == masked


class Renamed(Payload):
    model_config = ConfigDict(validate_by_name=True)

    a: SecretStr = Field(SecretStr("x"), alias="A")
    b: SecretStr = Field(SecretStr("x"), validation_alias=AliasChoices("b1", AliasPath("b2", 0)))
    c: SecretStr = Field(SecretStr("x"), serialization_alias="dotted.c")


def test_every_name_of_a_field_is_a_path() -> None:
    found = Task(kind="renamed", payload_type=Renamed, pool=Pool.SYSTEM).secret_paths
    assert found == ("*", "A", "a", "b", "b1", "b2", "c")  # a dot would make two steps of a name


def test_redact_names_fields_that_their_types_do_not_tell() -> None:
    fields = [("card", Card), ("names", list[str]), ("free", dict[str, Any]), ("any", Any), ("plain", str)]
    given = ("plain", "card.name", "names.*", "free.token", "any.deep.down")
    assert paths(*fields, redact=given) == tuple(sorted([*given, "card.number"]))
    assert paths(("card", Card), redact=("card",)) == ("card", "card.number")


@pytest.mark.parametrize("path", ["pasword", "card.nunber", "password.more", "", "card.", "*"])
def test_a_path_of_redact_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="names no field of Given; write"):
        paths(("password", str), ("card", Card), redact=(path,))


def test_redact_takes_paths_and_no_single_text() -> None:
    with pytest.raises(TypeError, match="given: redact must be a tuple of paths"):
        paths(("a", str), redact="a")  # type: ignore[arg-type]


def test_a_secret_as_a_key_is_refused() -> None:
    with pytest.raises(TypeError, match="a secret cannot be the key of an object"):
        _ = paths(("by_token", dict[SecretStr, int]))


def test_secrets_reach_the_worker_as_they_are(db: Look) -> None:
    ids = [enqueue(db, EVERYTHING, GIVEN), *enqueue_many(db, EVERYTHING, [GIVEN, GIVEN])]
    rows = db.execute("SELECT payload::text FROM background_jobs WHERE id = ANY(%s)", [ids]).fetchall()
    assert len(rows) == 3
    for (text,) in rows:
        assert Everything.model_validate_json(str(text)) == GIVEN


class Loose(Payload):
    anything: Any = None


def test_a_secret_in_a_field_that_does_not_tell_so_is_not_stored_as_asterisks(db: Look) -> None:
    task = Task(kind="loose", payload_type=Loose, pool=Pool.SYSTEM)
    enqueue(db, task, Loose(anything={"deep": [SecretStr("hidden")]}))
    assert db.execute("SELECT payload FROM background_jobs").fetchall() == [({"anything": {"deep": ["hidden"]}},)]
    with pytest.raises(ValueError, match="where a secret would be lost"):
        enqueue(db, task, Loose(anything=MASK))


@pytest.mark.parametrize(
    ("payload", "masked"),
    [
        ({"card": {"number": "4111", "name": "Ada"}}, {"card": {"number": MASK, "name": "Ada"}}),
        ({"card": None}, {"card": None}),
        ({"card": {"number": None}}, {"card": {"number": None}}),
        ({"card": {"number": {"odd": ["4111"]}}}, {"card": {"number": MASK}}),
        ({"card": "4111"}, {"card": MASK}),
        ({"card": ["4111", {"number": "4111"}]}, {"card": MASK}),
        ({"Card": "4111", "name": "Ada"}, {"Card": MASK, "name": "Ada"}),
        ({"cards": {"Number": "4111", "name": "Ada"}}, {"cards": {"Number": MASK, "name": "Ada"}}),
        ({"card": {}, "more": [{"x": [{"number": 1}]}]}, {"card": {}, "more": [{"x": [{"number": MASK}]}]}),
        (["4111"], MASK),
        ("4111", MASK),
        ({}, {}),
    ],
)
def test_a_payload_of_another_shape_shows_no_more_than_its_names(payload: Any, masked: Any) -> None:
    assert mask(payload, ["card.number"]) == masked


def test_elements_are_masked_in_lists_and_objects() -> None:
    assert mask({"t": ["a", "b"], "o": {"x": 1, "y": 2}, "p": "q"}, ["t.*", "o.*"]) == {
        "t": [MASK, MASK],
        "o": {"x": MASK, "y": MASK},
        "p": "q",
    }


def test_what_lies_too_deep_to_look_is_masked() -> None:
    deep: Any = "4111"
    for _ in range(200):
        deep = [deep]
    assert "4111" not in json.dumps(mask({"a": deep}, ["card.number"]))


def test_a_kind_that_nobody_has_declared_shows_the_names_of_its_fields_only(db: Look) -> None:
    row = db.execute(
        """INSERT INTO background_jobs (kind, pool, payload) VALUES ('misspelt', 'system', '{"a": "x", "b": [1]}')
           RETURNING id"""
    ).fetchone()
    assert row is not None
    assert reports.show_job(db, row[0]).job.payload == {"a": MASK, "b": MASK}  # type: ignore[arg-type]


async def test_readers_see_what_a_worker_has_declared_as_secret(store: JobStore, db: Look) -> None:
    await hire(store, tasks=[EVERYTHING])
    job_id = enqueue(db, EVERYTHING, GIVEN)
    (listed,) = reports.list_jobs(db, full=True)
    assert listed.payload == reports.show_job(db, job_id).job.payload
    assert listed.payload["card"] == {"number": MASK, "name": "Ada"}
    assert listed.payload["plain"] == "plain"
    assert reports.list_jobs(db)[0].payload is None


class Form(Payload):
    street: str = ""
    town: str = ""


async def test_what_was_secret_stays_so_in_a_release_that_forgets_it(store: JobStore, db: Look) -> None:
    async def start(*redact: str) -> tuple[object, ...] | None:
        await hire(store, tasks=[Task(kind="form", payload_type=Form, pool=Pool.SYSTEM, redact=redact)])
        return db.execute("SELECT secret_paths, xmin::text FROM background_kinds WHERE kind = 'form'").fetchone()

    first, second = await start("town"), await start("street")
    assert first is not None
    assert second is not None
    assert (first[0], second[0]) == (["town"], ["street", "town"])
    # However often workers of different releases start in turn, nothing is written any more.
    assert await start() == await start("town") == await start("street") == second

"""The values of secrets are taken out of texts, however those quote them."""

import gc
import json
import logging
from contextvars import copy_context
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from jobs.redaction import MASK, MAX_VALUES, PLAIN, redact, redactor
from pools.errors import describe
from pools.redacted import RedactedStream
from supervisor.logs import JsonLine, OneLine

SECRET = "p\u00e4\"ss'w\\rd & more"


def of(*values: object) -> str:
    return json.dumps({"s": values})


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        repr(SECRET),
        ascii(SECRET),
        repr(SECRET.encode()),
        repr({"s": [SECRET]}),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        f"https://host/?token={quote(SECRET, safe='')}",
    ],
)
def test_a_secret_is_found_as_programs_write_it(text: str) -> None:
    told = redactor(of(SECRET), ["s.*"]).text(f"before {text} after")
    assert MASK in told
    assert told.startswith("before ")
    assert told.endswith(" after")
    assert "more" not in told


def test_numbers_and_what_is_inside_of_a_secret_object_are_found() -> None:
    known = redactor(
        json.dumps({"card": {"number": 41111111, "holder": ["Ada Lovelace"], "ok": True, "x": None}}), ["card"]
    )
    assert known.text("41111111 of Ada Lovelace: true") == f"{MASK} of {MASK}: true"


def test_a_short_value_leaves_texts_readable() -> None:
    assert redactor(of("abc", 123, ""), ["s.*"]).text("abc 123 at the fabric") == "abc 123 at the fabric"


def test_each_line_of_a_secret_is_found_by_itself() -> None:
    known = redactor(of("first line\n  second line\n\nx"), ["s.*"])
    assert known.text("second line, then first line, x") == f"{MASK}, then {MASK}, x"


@given(st.text(min_size=4).filter(lambda text: len(text.strip()) >= 4 and text.strip() not in MASK), st.text())
def test_no_text_holds_a_secret_afterwards(secret: str, around: str) -> None:
    known = redactor(of(secret), ["s.*"])
    core = secret.strip()
    assert core not in known.text(f"{around}{secret}{around}").replace(MASK, "\0") or core in around


def test_a_result_stays_json() -> None:
    known = redactor(of("true", '":"', 123456, "token-value"), ["s.*"])
    text = '{"a":"b","token-value":true,"n":123456,"m":1234567,"list":["x token-value",null]}'
    assert json.loads(known.json(text)) == {
        "a": "b",
        MASK: True,
        "n": MASK,
        "m": 1234567,
        "list": [f"x {MASK}", None],
    }
    assert known.json('{"a": 1}') == '{"a": 1}'


def test_with_too_many_secrets_or_an_unreadable_payload_everything_is_withheld() -> None:
    many = redactor(of(*(f"value {n}" for n in range(MAX_VALUES + 1))), ["s.*"])
    deep, odd = redactor("[" * 100_000, ["s.*"]), redactor('{"s": ["half a pair: \\ud800"]}', ["s.*"])
    for known in (many, deep, odd):
        assert known.text("any\nthing") == f"{MASK}\n{MASK}"
        assert json.loads(known.json('{"a":["b",1]}')) == {MASK: [MASK, 1]}
        assert redact("the line of another job") == "the line of another job"


def test_without_secrets_there_is_nothing_to_do() -> None:
    assert redactor(of("value"), []) is PLAIN
    assert redactor('{"s": null}', ["s"]) is PLAIN
    assert not PLAIN
    assert PLAIN.json("[1") == PLAIN.text("[1") == "[1"


def test_an_error_shows_no_piece_of_a_secret_that_pydantic_or_a_bound_has_cut() -> None:
    secret = "".join(f"<{n:04}>" for n in range(50))
    known = redactor(of(secret), ["s.*"])
    with pytest.raises(ValidationError) as invalid:
        TypeAdapter(dict[str, int]).validate_python({"a": secret, "b": "other"})
    wrapped = RuntimeError(
        f"{'x' * 1_900}{secret}{'y' * 3_000} {invalid.value} {invalid.value!r} {str(invalid.value)!r}"
    )
    wrapped.__cause__ = invalid.value
    wrapped.add_note(secret)
    told = describe(wrapped, known)
    for text in (told.message, told.frames):
        assert MASK in text
        assert not [n for n in range(50) if f"{n:04}>" in text]
    assert f"input_value={MASK}]" in told.frames


def test_output_that_arrives_in_pieces_tells_no_secret() -> None:
    known = redactor(of(SECRET), ["s.*"])
    output = f"line\n{SECRET}\n{'z' * 10_000}{SECRET}{'z' * 50_000}{SECRET}".encode()
    expected = output.decode().replace(SECRET, MASK).encode()
    for size in (1, 7, 4096, len(output)):
        stream = RedactedStream(known)
        told = [stream.feed(output[start : start + size]) for start in range(0, len(output), size)]
        assert b"".join([*told, stream.rest()]) == expected


def test_output_is_told_line_by_line_and_a_long_line_before_its_end() -> None:
    stream = RedactedStream(redactor(of(SECRET), ["s.*"]))
    assert stream.feed(b"a whole line\nand a") == b"a whole line\n"
    assert len(stream.feed(b"z" * 100_000)) > 90_000
    assert stream.feed(b"\xff\xfe\n").endswith(b"z\xff\xfe\n")


def test_a_log_line_is_redacted_while_anything_of_the_job_is_left() -> None:
    record = logging.makeLogRecord({"msg": "got %r", "args": (SECRET,), "levelname": "INFO"})

    def lines() -> str:
        return OneLine().format(record) + JsonLine().format(record)

    assert "more" in lines()
    known = redactor(of(SECRET), ["s.*"])
    assert "more" not in lines()
    task = copy_context()
    task.run(known.hold)
    del known
    gc.collect()
    assert "more" not in lines()
    del task
    gc.collect()
    assert "more" in lines()

"""Arrays come to PostgreSQL as they were meant, whatever stands in them."""

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.arrays import numbers, texts
from tests.jobs.lab import Connection, scalar

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
HARD = st.sampled_from(["", "NULL", "null", " a ", 'quote"d', "back\\slash", '\\"', "com,ma", "{br}ace", "line\nbreak"])


@given(values=st.lists(st.none() | HARD | TEXT, max_size=6))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_texts_and_nothing_come_as_they_are(db: Connection, values: list[str | None]) -> None:
    assert scalar(db, "SELECT %s::text[]", texts(values)) == values


def test_numbers_come_as_they_are(db: Connection) -> None:
    assert scalar(db, "SELECT %s::bigint[]", numbers([])) == []
    assert scalar(db, "SELECT %s::bigint[]", numbers([1, -(2**63)])) == [1, -(2**63)]
    assert scalar(db, "SELECT %s::float8[]", numbers([0.1, -math.inf, 1e300])) == [0.1, -math.inf, 1e300]

"""The versioned schema: SQL files, in order. Each is one transaction, unless it says that it has steps.

A step begins at a line `-- step: ` and how it is run:

- `in one transaction`: with short waits for locks, for while it waits, all who come after it wait too;
- `concurrently`: one `CREATE INDEX CONCURRENTLY`, which holds up no writer and cannot be in a transaction. What a run
  that died has left is removed and built again;
- `in batches`: one statement that changes a bounded number of rows, again and again until it changes none.

A run that dies between two steps begins with the first one again, so each must bear that.

A worker goes on while the schema is migrated under it: a migration leaves what the release before uses, by name,
parameters and columns, and what nobody uses any more goes with a later one. That one says so: a line `-- needs: 12`
means that releases older than schema 12 cannot work with it.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import LiteralString, cast

NEWEST = 19  # told here, so that a worker which compares it with its database's need not read them all

_STEP = re.compile(r"^-- step: (.*)\n", re.MULTILINE)
_NEEDS = re.compile(r"^-- needs: (\d+)$", re.MULTILINE)
_CONCURRENT_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (CONCURRENTLY )(\w+)")


class How(StrEnum):
    """How a step is run."""

    TRANSACTION = "in one transaction"
    CONCURRENTLY = "concurrently"
    BATCHES = "in batches"


@dataclass(frozen=True, slots=True)
class Step:
    how: How
    sql: LiteralString

    @property
    def index(self) -> str:
        """The name of the index that a concurrent step makes."""
        found = _CONCURRENT_INDEX.search(self.sql)
        assert found is not None, f"no CREATE INDEX CONCURRENTLY: {self.sql}"
        return found[2]

    @property
    def at_once(self) -> LiteralString:
        """The same for a database without rows, in any transaction."""
        return _CONCURRENT_INDEX.sub(lambda found: found[0].replace(found[1], ""), self.sql)


@dataclass(frozen=True, slots=True)
class Migration:
    """`needs` is the oldest schema whose release can work with this one."""

    version: int
    name: str
    steps: tuple[Step, ...]
    needs: int = 0


def parse(name: str, text: LiteralString) -> Migration:
    """The migration in a file of this name, without its ending."""
    head, *parts = _STEP.split(text)
    steps = [
        Step(How(how), cast("LiteralString", sql.strip() + "\n"))
        for how, sql in zip(parts[::2], parts[1::2], strict=True)
    ]
    if not steps:
        steps = [Step(How.TRANSACTION, cast("LiteralString", head))]
    needs = _NEEDS.search(text)
    return Migration(int(name[:4]), name, tuple(steps), int(needs[1]) if needs else 0)


def migrations() -> list[Migration]:
    """All migrations of this release, in order."""
    from importlib.resources import files  # which an idle worker would keep for nothing

    found = [
        parse(entry.name.removesuffix(".sql"), entry.read_text(encoding="utf-8"))
        for entry in files(__name__).iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(found, key=lambda migration: migration.version)

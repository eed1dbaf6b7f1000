"""Every way of dying that the documentation lists is a test, or the documentation says why it cannot be one here."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCENARIOS = range(1, 41)
NAMED = re.compile(r"Scenarios? (\d+(?:(?:, | to | and )\d+)*)")


def numbers(text: str) -> set[int]:
    """The scenario numbers that a docstring names: `Scenario 7:`, `Scenarios 18 and 19`, `Scenarios 2 to 4`."""
    found: set[int] = set()
    for named in NAMED.findall(text):
        for part in re.split(r", | and ", named.strip()):
            first, _, last = part.partition(" to ")
            found |= set(range(int(first), int(last or first) + 1))
    return found


def by_scenario() -> dict[int, list[str]]:
    """The tests of each scenario, by what their docstrings say."""
    by_number: dict[int, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for number in numbers(ast.get_docstring(node) or ""):
                    by_number.setdefault(number, []).append(f"{path.relative_to(ROOT)}::{node.name}")
    return by_number


def told() -> dict[int, str]:
    """What the documentation says of each scenario."""
    rows = re.findall(r"^\| (\d+) \| .+ \| (.+) \|$", (ROOT / "docs" / "chaos.md").read_text(), re.MULTILINE)
    return {int(number): how for number, how in rows}


def test_every_scenario_is_tested_or_says_why_not() -> None:
    tests, rows = by_scenario(), told()
    assert sorted(rows) == list(SCENARIOS)
    for number in SCENARIOS:
        says_why_not = rows[number].startswith("not tested here:")
        assert bool(tests.get(number)) != says_why_not, f"scenario {number}: {tests.get(number)}, {rows[number]}"

"""Writes the table of settings into the reference, from the settings themselves."""

import re
from pathlib import Path

from supervisor.settings import Settings

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "settings.md"
START, END = "<!-- settings, written by scripts/settings_table.py -->\n", "<!-- end of settings -->\n"


def table() -> str:
    """The settings as a Markdown table: name, default, meaning."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = field.default
        shown = ",".join(default) if isinstance(default, list) else "" if default in ("", None) else f"{default}"
        rows.append(f"| `{name.upper()}` | {shown} | {field.description} |")
    return "\n".join(rows) + "\n"


def written(text: str) -> str:
    """`text` with the table between its two marks."""
    return re.sub(f"{re.escape(START)}.*?{re.escape(END)}", f"{START}{table()}{END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))

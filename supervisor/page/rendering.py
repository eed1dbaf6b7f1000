"""Pages from templates. Whatever a template prints is made visible and escaped; nothing in it can leave that out."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from jobs.reports import MAX_BY_HAND_SHOWN, JobRow, error_line, error_stack
from supervisor.page import charts, quantities, visible
from supervisor.page.notes import deed, note

LIVE_BLOCK = "live"  # of a view's template: what is sent again when something changes


class Templates:
    """The templates of the page."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("supervisor.page"),
            autoescape=True,
            finalize=_printed,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "moment": _moment,
            "note": _note,
            "deed": deed,
            "error_line": error_line,
            "error_stack": error_stack,
            "date": quantities.date,
            "typed": quantities.typed,
            "span": quantities.span,
            "size": quantities.size,
            "megabytes": quantities.megabytes,
            "short": visible.short,
            "as_json": visible.as_json,
        }
        self._environment.globals |= {"asset": asset_name, "charts": charts, "most_by_hand": MAX_BY_HAND_SHOWN}
        # For all templates, because a block that is made alone knows none of its template's own imports.
        self._environment.globals["parts"] = self._environment.get_template("parts.html").module

    def page(self, template: str, context: Mapping[str, Any]) -> str:
        """The whole page."""
        return self._environment.get_template(template).render(context)

    def live_part(self, template: str, context: Mapping[str, Any]) -> str:
        """Only what changes."""
        found = self._environment.get_template(template)
        return "".join(found.blocks[LIVE_BLOCK](found.new_context(dict(context))))


@cache
def asset(name: str) -> bytes:
    """A file that goes with the pages. Raises `FileNotFoundError`."""
    return (files("supervisor.page") / "static" / name).read_bytes()


@cache
def asset_name(name: str) -> str:
    """Its name with what it holds, so that a browser keeps it and still never shows an old one."""
    stem, _, suffix = name.rpartition(".")
    return f"{stem}.{hashlib.sha256(asset(name)).hexdigest()[:12]}.{suffix}"


def _printed(value: object) -> object:
    if isinstance(value, Markup):
        return value
    return "" if value is None else visible.visible(str(value))


@pass_context
def _moment(context: Context, at: datetime | None, now: datetime | None = None) -> Markup:
    return quantities.moment(at, now or context["now"])


@pass_context
def _note(context: Context, job: JobRow) -> str:
    return visible.short(note(job, context["now"]), 160)

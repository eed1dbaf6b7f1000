"""How `oomph` shows its help and how it fails."""

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from supervisor.commands.output import printable
from supervisor.errors import explain


class OomphGroup(TyperGroup):
    """Lists the commands of all levels, one line each, by section; turns expected errors into a paragraph."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, Any]]] = {}
        for name in self.list_commands(ctx):
            command = self.commands[name]
            section = sections.setdefault(getattr(command, "rich_help_panel", None) or "Commands", [])
            section.extend(_leaves(name, command))
        width = max(len(name) for leaves in sections.values() for name, _ in leaves)
        for title, leaves in sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), leaf.get_short_help_str(formatter.width - width - 6)) for name, leaf in leaves]
                )

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception as error:
            paragraph = explain(error)
            if paragraph is None:
                raise
            typer.echo(f"Error: {printable(paragraph)}", err=True)
            raise typer.Exit(1) from error


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(command, TyperGroup):
        yield name, command
        return
    for inner, leaf in command.commands.items():
        yield from _leaves(f"{name} {inner}", leaf)

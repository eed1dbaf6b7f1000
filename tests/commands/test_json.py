"""Every command that prints something prints it for programs too, and an action says what it did."""

from collections.abc import Callable
from typing import Any

from supervisor.commands.application import cli
from tests.commands.conftest import Connection, Oomph

BY = ("--actor", "ada", "--json")
WITHOUT = {"page", "worker"}  # it prints a log, whose JSON is a setting


def commands() -> dict[str, Any]:
    """All commands by their names, groups followed."""
    import typer

    def leaves(name: str, command: Any) -> dict[str, Any]:
        inner = getattr(command, "commands", None)
        if inner is None:
            return {name: command}
        return {key: leaf for each, below in inner.items() for key, leaf in leaves(f"{name} {each}", below).items()}

    return leaves("", typer.main.get_command(cli))


def test_every_command_can() -> None:
    without = {
        name.strip()
        for name, command in commands().items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == WITHOUT


def test_actions_say_what_they_did(oomph: Oomph, insert: Callable[..., int]) -> None:
    dead, queued = insert(status="dead"), insert()
    assert oomph("jobs", "retry", str(dead), *BY).json == [{"id": dead, "status": "queued"}]
    assert oomph("jobs", "cancel", str(dead), str(queued), *BY).json == [
        {"id": dead, "status": "cancelled"},
        {"id": queued, "status": "cancelled"},
    ]
    paused = oomph("kinds", "pause", "greet", "--reason", "rest", *BY).json
    assert (paused["kind"], paused["paused_by"], paused["pause_reason"]) == ("greet", "ada", "rest")
    assert oomph("kinds", "resume", "greet", "--probe", *BY).json["probe"] is True
    assert oomph("kinds", "resume", "greet", *BY).json["paused_at"] is None


def test_a_refusal_prints_nothing_for_programs_to_mistake(oomph: Oomph, insert: Callable[..., int]) -> None:
    queued = insert()
    assert "only a dead or cancelled job" in oomph("jobs", "retry", str(queued), *BY).refused()


def test_a_migration_names_what_it_applied(oomph: Oomph, anywhere: Oomph, bare_url: str, db: Connection) -> None:
    applied = anywhere("migrate", "--json", DATABASE_URL=bare_url).json["applied"]
    assert applied[0] == "0001_initial"
    assert oomph("migrate", "--json").json["applied"] == []
    assert "--sql" in anywhere("migrate", "--json", "--sql").misused()

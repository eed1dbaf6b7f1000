"""`oomph doctor`."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

import typer

from supervisor.commands.options import AppSpec, AsJson, DatabaseUrl, EmbeddedFolder, refuse_two_databases
from supervisor.commands.output import Column, print_facts, print_json, print_table, printable

if TYPE_CHECKING:
    from supervisor.doctor.findings import Finding

STYLES = {"warning": "yellow", "error": "bold red"}


def doctor(
    app: AppSpec = None,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Look at this host, app and database as a worker would.

    Changes nothing. Run it as the worker runs: same user, same container or unit, same environment. Each line is ok, a
    warning or an error; the exit status is 1 if there is an error, and 0 otherwise.
    """
    from supervisor.doctor.examination import Patient, examine
    from supervisor.doctor.findings import Level

    refuse_two_databases(database, embedded)
    with _stdout_is_ours():
        findings = list(examine(Patient(app=app or "", database=database, embedded=embedded)))
    if as_json:
        print_json(findings)
    else:
        _print_report(findings)
    if any(finding.level is Level.ERROR for finding in findings):
        raise typer.Exit(1)


def _print_report(findings: "list[Finding]") -> None:
    columns: list[Column[Finding]] = [
        Column("CHECK", lambda row: row.name),
        Column("LEVEL", lambda row: row.level, style=lambda row: STYLES.get(row.level, "")),
        Column("FOUND", lambda row: row.found, flexible=True),
    ]
    print_table(columns, findings, empty="nothing was looked at")
    for finding in findings:
        if finding.advice:
            typer.echo(f"\n{printable(finding.name)}: {finding.level}")
            print_facts([("found", finding.found), ("do", finding.advice)], indent="  ")
    levels = Counter(finding.level.value for finding in findings)
    typer.echo("\n" + ", ".join(f"{levels[level]} {level}" for level in ("ok", "warning", "error")))


@contextmanager
def _stdout_is_ours() -> Iterator[None]:
    """What the app prints while it is imported, here or in a template, goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)

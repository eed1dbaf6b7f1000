"""What the doctor has found, for the tests that read it."""

import json

from tests.commands.conftest import Answer

OF_THE_HOST = {
    "kernel", "subreaper", "overcommit", "swap", "oom_score_adj", "Landlock", "seccomp", "user", "open files",
    "processes", "marks", "cgroup version", "cgroup delegation", "memory.oom.group", "memory", "fork", "fork safety",
}  # fmt: skip
OF_THE_DATABASE = {
    "database", "PostgreSQL", "writable", "connections", "migrations", "clock", "pooler", "NOTIFY", "oldest snapshot",
    "dead rows", "claim plan", "workers",
}  # fmt: skip


def findings(answer: Answer, *, status: int = 0) -> dict[str, dict[str, str]]:
    """The findings of a doctor that ended with this status, by name."""
    assert answer.status == status, (answer.out, answer.err)
    found: list[dict[str, str]] = json.loads(answer.out)
    for finding in found:
        assert finding.keys() == {"name", "level", "found", "advice"}
        assert bool(finding["advice"]) is (finding["level"] != "ok"), finding
    assert status == int(any(finding["level"] == "error" for finding in found))
    return {finding["name"]: finding for finding in found}

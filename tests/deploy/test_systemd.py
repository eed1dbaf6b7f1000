"""The units in deploy/systemd: as systemd reads them, and as it runs them."""

import pwd
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import httpx
import psutil
import pytest
from psycopg.conninfo import make_conninfo

from jobs.control import cancel
from pools import cgroups
from pools.procfs import cgroup2_folder, slurp
from supervisor.doctor import cgroup
from supervisor.doctor.cgroup import CgroupReading
from supervisor.testing import wait_for
from supervisor.testing.processes import FAST
from tests.deploy import host_copy
from tests.deploy.files import DEPLOY, UNIT
from tests.deploy.host_copy import open_to_all
from tests.deploy.systemd_host import LOG, SHOW_PYTHON, UNITS, SystemdHost, booted
from tests.docs.pages import blocks, commands
from tests.examples.site import free_port
from tests.proxy import Proxy
from tests.worker.app import AGENT, HURRIED_INGEST, INGEST
from tests.worker.conftest import Bench

# Where the log can be read, and no time that a test has not.
QUICK = f"[Service]\nStandardOutput=append:{LOG}\nStandardError=append:{LOG}\nTimeoutStopSec=3\nRestartSec=0.1\n"
MOST_EXPOSED = 3.0  # of 10, as systemd-analyze reckons; a unit without any of these settings has 9.6

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")


def why_no_systemd_runs() -> str | None:
    if not Path("/lib/systemd/systemd").exists():
        return "systemd is not installed here"
    if cgroup2_folder("0::/\n", slurp("/proc/self/mountinfo")) is None:
        return "no cgroup v2 is mounted here"
    return host_copy.why_not()


def needs_its_python_shown() -> bool:
    """Whether `ProtectHome=yes` would hide it."""
    return sys.base_prefix.startswith(("/root", "/home"))


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units, with a program that exists on this host."""
    for path in UNITS.glob("*.service"):
        program = Path(sys.executable).with_name("oomph")
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/oomph/bin/oomph", str(program)))
    return tmp_path


def analyze(*arguments: str) -> str:
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@needs_systemd
def test_systemd_finds_no_fault_in_the_units(units: Path) -> None:
    (units / "oomph-worker@ingest.service").symlink_to(units / "oomph-worker@.service")
    drop_ins = units / "oomph-worker@root.service.d"
    drop_ins.mkdir()
    shutil.copy(UNITS / "ingest-user.conf", drop_ins)
    (units / "oomph-worker@root.service").symlink_to(units / "oomph-worker@.service")
    for unit in (
        "oomph-worker@ingest.service",
        "oomph-worker@root.service",
        "oomph-migrate.service",
        "oomph-page.service",
    ):
        assert analyze("verify", "--man=no", str(units / unit)) == ""


@needs_systemd
@pytest.mark.parametrize("unit", ["oomph-worker@.service", "oomph-page.service"])
def test_what_serves_is_hardened(units: Path, unit: str) -> None:
    told = analyze("security", "--offline=true", "--no-pager", str(units / unit))
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", told)
    assert found, told
    assert float(found[1]) <= MOST_EXPOSED, told


def doctors_line() -> list[str]:
    """What the README gives to look at a host with, as words."""
    (line,) = (
        command
        for block in blocks(DEPLOY / "README.md")
        for command, _ in commands(block.text)
        if command.startswith("systemd-run ")
    )
    return shlex.split(line.replace("\\\n", ""))


def test_the_doctor_is_run_with_the_settings_of_the_unit() -> None:
    words = doctors_line()
    given = [value for option, value in pairwise(words) if option in ("-p", "-E")]
    unit = UNIT.read_text().replace("%S", "/var/lib").replace("%i", "ingest").replace("%I", "ingest").splitlines()
    assert [each for each in given if each not in unit and f"Environment={each}" not in unit] == []
    # And what the doctor looks at is all there.
    looked_at = r"(User|Group|StateDirectory|WorkingDirectory|EnvironmentFile|Delegate|TasksMax|Limit\w+)="
    assert [line for line in unit if re.match(looked_at, line) and line not in given] == []
    assert words[-2:] == [re.findall(r"^ExecStart=(\S+)", UNIT.read_text(), re.MULTILINE)[0], "doctor"]


def test_what_is_advised_for_a_unit_without_delegation_is_what_the_unit_has() -> None:
    (delegate,) = re.findall(r"^Delegate=.*$", UNIT.read_text(), re.MULTILINE)
    assert delegate == cgroups.DELEGATE
    refused = CgroupReading(
        wanted="auto", memory_version=2, folder="/a", refusal="not delegated", controllers=(), group_kill=None
    )
    for check in (cgroup.delegation, cgroup.controllers):
        assert delegate in str(check(refused).advice)


@dataclass
class Deployment:
    host: SystemdHost
    bench: Bench


@pytest.fixture
def deployment(url: str, tmp_path: Path) -> Iterator[Deployment]:
    if reason := why_no_systemd_runs():
        pytest.skip(reason)
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(url))  # its socket can be shared with a host where users are others
        settings = {
            **FAST,
            "DATABASE_URL": make_conninfo(proxy.url, host="/srv/db"),
            "WORKER_APP": "tests.worker.app:app",
            "WORKER_INGEST_CONCURRENCY": "1",
        }
        host = stack.enter_context(booted(tmp_path / "host", open_to_all(proxy), settings))
        for unit in ("oomph-worker@.service", "oomph-migrate.service", "oomph-page.service"):
            host.drop_in(unit, QUICK)
            if needs_its_python_shown():
                host.drop_in(unit, SHOW_PYTHON, "python")
        yield Deployment(host, Bench(url, tmp_path, stack))


def test_systemd_starts_watches_and_drains_a_worker(deployment: Deployment) -> None:
    host, bench = deployment.host, deployment.bench
    unit = "oomph-worker@ingest"
    host.systemctl("start", unit)
    told = host.show(unit, "ActiveState", "StatusText", "Type", "Delegate", "OOMPolicy", "ControlGroup")
    assert told["ActiveState"] == "active"
    assert told["StatusText"] == "ready, 0 running"
    bench.wait(bench.put(INGEST), "succeeded")

    running = bench.put(INGEST, "wait", 6)
    bench.wait(running, "running")
    groups = host.cgroups(unit)
    assert {len(pids) for name, pids in groups.items() if "/job-" in name} == {1}, groups  # and the next one's child
    assert len([name for name in groups if name.endswith("/worker")]) == 1, groups
    host.systemctl("stop", unit)  # after more than TimeoutStopSec=: what the worker asks for counts
    assert bench.job(running, "status, attempt") == ("succeeded", 1)
    assert host.show(unit, "ActiveState", "Result") == {"ActiveState": "inactive", "Result": "success"}
    assert host.cgroups(unit) == {}


def test_the_line_for_the_doctor_looks_at_the_host_as_the_unit_would(deployment: Deployment) -> None:
    line = doctors_line()
    # Without a message bus, which this host lacks, its type is what waits for a unit; and no target is started.
    swaps = {"--wait": "--property=Type=oneshot", "--pipe": f"--property=StandardOutput=append:{LOG}"}
    words = [swaps.get(word, word) for word in line]
    words[1:1] = ["-p", "DefaultDependencies=no"]
    if needs_its_python_shown():
        words[words.index("ProtectHome=yes")] = "ProtectHome=tmpfs"
        words[1:1] = ["-p", f"BindReadOnlyPaths={sys.base_prefix}"]
    deployment.host.run(*words)
    found = {line[:20].strip(): line[20:] for line in deployment.host.log().splitlines()}
    assert found["user"] == "ok       jobs run as the worker's own user, which is not root"
    assert found["app"].startswith("ok       tests.worker.app:app")
    assert re.match(r"ok       \S+/run-\S+\.service: a leaf for each child", found["cgroup delegation"])
    assert found["database"].startswith("ok ")


def test_a_python_that_the_services_user_may_not_run_shows_as_the_page_says(deployment: Deployment) -> None:
    host = deployment.host
    host.copy.run("sh", "-c", "mkdir -p /root/python && cp /bin/true /root/python/python && chmod 700 /root")
    host.copy.run("ln", "-sf", "/root/python/python", "/opt/oomph/bin/python")
    assert host.show("oomph-migrate", "Result")["Result"] == "success"
    with pytest.raises(AssertionError, match="oomph-migrate"):
        host.systemctl("start", "oomph-migrate")
    assert host.show("oomph-migrate", "ExecMainStatus") == {"ExecMainStatus": "203"}


def test_systemd_replaces_a_worker_that_is_blocked(deployment: Deployment) -> None:
    host, bench = deployment.host, deployment.bench
    unit = "oomph-worker@agent"
    host.drop_in(f"{unit}.service", "[Service]\nWatchdogSec=2\n", "watchdog")
    host.systemctl("start", unit)
    blocked = bench.put(AGENT, "block", 600)
    wait_for(lambda: host.show(unit, "NRestarts")["NRestarts"] != "0", "the worker's replacement", 30)
    assert host.log().count("ready: worker") >= 1
    bench.db.execute("UPDATE background_jobs SET status = 'cancelled' WHERE id = %s", [blocked])
    bench.wait(bench.put(AGENT), "succeeded", seconds=30)


def test_jobs_of_a_worker_under_systemd_run_as_a_user_of_their_own(deployment: Deployment) -> None:
    host, bench = deployment.host, deployment.bench
    unit = "oomph-worker@ingest"
    host.drop_in(f"{unit}.service", (UNITS / "ingest-user.conf").read_text(), "ingest-user")
    host.copy.write("/etc/oomph/ingest.env", "WORKER_INGEST_USER=nobody\n")
    host.systemctl("start", unit)
    running = bench.put(INGEST, "wait", 4)
    bench.wait(running, "running")
    jobs = [pid for name, pids in host.cgroups(unit).items() if "/job-" in name for pid in pids]
    # The child for the next job may be there too, and is nobody's until it is prepared.
    assert pwd.getpwnam("nobody").pw_uid in {psutil.Process(pid).uids().real for pid in jobs}
    bench.wait(running, "succeeded")
    (enclosed,) = [line for line in host.log().splitlines() if "children are enclosed" in line]
    assert "/dev/shm" not in enclosed  # which each has of its own, or the line would name it
    stuck = bench.put(INGEST, "wait", 600)
    bench.wait(stuck, "running")
    cancel(bench.db, stuck, actor="test")
    bench.wait(stuck, "cancelled")
    late = bench.put(HURRIED_INGEST, "wait", 600)
    bench.wait(late, "dead")
    assert bench.attempts(late) == [("timed_out",)]


def test_migrations_run_as_a_unit(deployment: Deployment) -> None:
    deployment.host.systemctl("start", "oomph-migrate")
    assert deployment.host.show("oomph-migrate", "Result")["Result"] == "success"


def test_the_page_runs_as_a_unit(deployment: Deployment) -> None:
    host, unit, port = deployment.host, "oomph-page", free_port()
    host.copy.write("/etc/oomph/page.env", f"PAGE_OPTIONS=--port {port}\n")
    install = "install -D -m 600 -o oomph -g oomph /dev/null /etc/oomph/tokens && cat > /etc/oomph/tokens"
    host.copy.run("sh", "-c", f"echo owner ada a-token-of-twenty-or-more | ({install})")
    host.systemctl("start", unit)
    wait_for(lambda: answer(port, "/readyz") == 200, "a page that is ready", 30)
    assert answer(port, "/") == 401
    host.systemctl("stop", unit)
    assert host.show(unit, "ActiveState", "Result") == {"ActiveState": "inactive", "Result": "success"}
    assert "can be read by others" not in host.log()


def answer(port: int, path: str) -> int | None:
    """The status of the answer; None where nobody gives one. The test's host has the network of this one."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=10).status_code
    except httpx.TransportError:
        return None

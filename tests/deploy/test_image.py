"""The image and the compose file: as their linters read them, and the image's entry point as a container starts it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from psycopg.conninfo import make_conninfo

from supervisor.testing import wait_for
from supervisor.testing.processes import FAST
from tests.deploy import host_copy
from tests.deploy.dockerfile import Image, build, instructions, is_sent
from tests.deploy.host_copy import HostCopy, dying_with_us, first_child, open_to_all
from tests.proxy import Proxy
from tests.worker.app import AGENT, INGEST
from tests.worker.conftest import Bench

pytestmark = pytest.mark.timeout(600)  # the first test waits for the image: a minute, or more where much is downloaded

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
COMPOSE = ROOT / "deploy" / "docker" / "compose.yaml"

# What `docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges` does, as PID 1.
_CONTAINER = """
set -e
ip link set lo up
mount -t tmpfs -o mode=1777 tmp /tmp
mount -o remount,bind,ro /
cd "$1"; shift
user=$1; shift
exec setpriv --reuid="${user%:*}" --regid="${user#*:}" --clear-groups \
    --no-new-privs --bounding-set=-all --inh-caps=-all env -i "$@"
"""


def told(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_dockerfile_has_no_fault_that_hadolint_knows() -> None:
    told(str(Path(sys.executable).with_name("hadolint")), "--no-color", str(DOCKERFILE))


def test_the_compose_file_is_one() -> None:
    told(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE))


def test_the_build_sees_what_it_copies_and_no_secret() -> None:
    copied = [rest.split()[0] for name, rest in instructions(DOCKERFILE) if name == "COPY" and "--from" not in rest]
    assert all(is_sent(ROOT, path) for path in copied), copied
    assert not any(is_sent(ROOT, path) for path in (".git", ".env", ".venv", "tests", "deploy"))


@dataclass
class Built:
    copy: HostCopy
    image: Image


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    if reason := host_copy.why_not():
        pytest.skip(reason)
    with HostCopy(tmp_path_factory.mktemp("image") / "copy") as copy:
        for folder in Path(sys.base_prefix).parents:
            copy.run("chmod", "o+x", str(folder))  # of the copy alone: an interpreter in somebody's home
        yield Built(copy, build(DOCKERFILE, ROOT, copy))


def test_the_image_holds_what_is_locked_and_the_worker(built: Built) -> None:
    image = built.image
    assert image.user == "10001:10001"
    assert image.entrypoint + image.command == ["oomph", "worker"]
    listed = (
        built.copy.run("/opt/oomph/bin/python", "-m", "pip", "list", "--format=freeze")
        .lower()
        .replace("_", "-")
        .splitlines()
    )
    locked = {line.split()[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    added = {line.partition("==")[0] for line in {*listed} - locked}
    assert added <= {"oomph", "pip", "setuptools"}
    assert not any(line.startswith("embedded") for line in listed)


def test_a_container_works_as_pid_1_without_root_and_without_a_writable_root(
    built: Built, bench: Bench, tmp_path: Path
) -> None:
    """As of `docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges` and `docker stop`."""
    copy, image = built.copy, built.image
    copy.share(ROOT / "tests", "/app/tests")
    with Proxy(bench.url) as proxy:
        copy.share(open_to_all(proxy), "/srv/db")
        environment = image.environment | FAST | {"WORKER_APP": "tests.worker.app:app"}
        environment["DATABASE_URL"] = make_conninfo(proxy.url, host="/srv/db")
        environment["PATH"] = "/opt/oomph/bin:/usr/bin:/bin"
        with container(built, environment, tmp_path / "log") as (process, pid):
            wait_for(lambda: is_healthy(pid, image.health), "a healthy container", 30)
            bench.wait(bench.put(AGENT), "succeeded")
            bench.wait(bench.put(INGEST), "succeeded")
            running = bench.put(INGEST, "wait", 2)
            bench.wait(running, "running")
            status = Path(f"/proc/{pid}/status").read_text()
            assert f"\nNSpid:\t{pid}\t1\n" in status
            assert "\nUid:\t10001\t10001\t10001\t10001\n" in status
            assert "\nCapEff:\t0000000000000000\n" in status
            os.kill(pid, signal.SIGTERM)
            assert process.wait(20) == 0, (tmp_path / "log").read_text()
            assert bench.job(running, "status, attempt") == ("succeeded", 1)


def test_a_container_with_the_page_is_healthy_and_its_tokens_are_a_secret(
    built: Built, bench: Bench, tmp_path: Path
) -> None:
    copy, image, service = built.copy, built.image, yaml.safe_load(COMPOSE.read_text())["services"]["page"]
    kind, *check = service["healthcheck"]["test"]
    assert kind == "CMD"
    copy.write("/run/secrets/tokens", "owner ada a-token-of-twenty-or-more\n")
    copy.run("sh", "-c", "chmod 400 /run/secrets/tokens && chown 10001 /run/secrets/tokens")
    log = tmp_path / "log"
    with Proxy(bench.url) as proxy:
        copy.share(open_to_all(proxy), "/srv/db-of-the-page")
        environment = image.environment | {"DATABASE_URL": make_conninfo(proxy.url, host="/srv/db-of-the-page")}
        environment["PATH"] = "/opt/oomph/bin:/usr/bin:/bin"
        with container(built, environment, log, service["command"]) as (process, pid):
            checks = (image.health, check)
            wait_for(lambda: all(is_healthy(pid, each) for each in checks), "a healthy container", 30)
            proxy.cut()
            wait_for(lambda: not any(is_healthy(pid, each) for each in checks), "an unhealthy container", 30)
            os.kill(pid, signal.SIGTERM)
            assert process.wait(20) == 0, log.read_text()
    assert "can be read by others" not in log.read_text()


@contextmanager
def container(
    built: Built, environment: Mapping[str, str], log: Path, command: Sequence[str] = ()
) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """The command, or the image's own, as PID 1 of a container, and its pid as the host numbers it."""
    image = built.image
    namespaces = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--ipc", "--uts"]
    start = dying_with_us(
        built.copy.command("sh", "-c", _CONTAINER, "sh", image.folder, image.user, unshare=namespaces)
    )
    given = [f"{name}={value}" for name, value in environment.items()]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*start, *given, *image.entrypoint, *(command or image.command)], stdout=sink, stderr=sink
        )
    try:
        yield process, wait_for(lambda: first_child(process.pid), "PID 1 of the container")
    finally:
        process.kill()
        process.wait()


def is_healthy(pid: int, check: Sequence[str]) -> bool:
    """What a HEALTHCHECK says, in the container."""
    inside = ["nsenter", "-t", str(pid), "-m", "-p", "-n", "-r", "-w", "env", "PATH=/opt/oomph/bin"]
    return subprocess.run([*inside, *check], capture_output=True, timeout=20, check=False).returncode == 0

"""The image and the compose file: as their linters read them, and the image's entry point as a container starts it."""

import importlib.util
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from supervisor.testing import wait_for
from supervisor.testing.processes import FAST
from tests.deploy import host_copy
from tests.deploy.dockerfile import Image, build, instructions, is_sent
from tests.deploy.host_copy import HostCopy
from tests.proxy import SOCKET, Proxy
from tests.worker.app import AGENT, INGEST
from tests.worker.conftest import Bench

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
COMPOSE = ROOT / "deploy" / "docker" / "compose.yaml"

# What `docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges` does, as PID 1.
_CONTAINER = """
set -e
mount -t tmpfs -o mode=1777 tmp /tmp
mount -o remount,bind,ro /
cd "$1"; shift
user=$1; shift
exec setpriv --reuid="${user%:*}" --regid="${user#*:}" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
    env -i "$@"
"""


def told(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_dockerfile_has_no_fault_that_hadolint_knows() -> None:
    told(str(Path(sys.executable).with_name("hadolint")), "--no-color", str(DOCKERFILE))


def test_the_compose_file_is_one() -> None:
    assert importlib.util.find_spec("check_jsonschema") is not None
    told(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE))


def test_the_build_sees_what_it_copies_and_no_secret() -> None:
    copied = [rest.split()[0] for name, rest in instructions(DOCKERFILE) if name == "COPY" and "--from" not in rest]
    assert all(is_sent(ROOT, path) for path in copied), copied
    assert not any(is_sent(ROOT, path) for path in (".git", ".env", ".venv", "tests", "deploy"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HostCopy, Image, Path]]:
    if reason := host_copy.why_not() or (None if shutil.which("setpriv") else "setpriv is not installed here"):
        pytest.skip(f"{reason}; no Docker engine is asked for, which would need its own privileges")
    sockets = tmp_path_factory.mktemp("sockets")
    with HostCopy(tmp_path_factory.mktemp("image") / "copy", {sockets: "/srv", ROOT / "tests": "/app/tests"}) as copy:
        for folder in Path(sys.executable).resolve().parents:
            copy.run("chmod", "o+x", str(folder))  # of the copy: an interpreter in somebody's home
        image = build(DOCKERFILE, ROOT, copy)
        yield copy, image, sockets


def test_the_image_is_the_lock_and_the_worker(built: tuple[HostCopy, Image, Path]) -> None:
    copy, image, _ = built
    assert image.user == "10001:10001"
    assert image.entrypoint + image.command == ["oomph", "worker"]
    copy.run("/opt/oomph/bin/oomph", "--version")
    listed = copy.run("/opt/oomph/bin/python", "-m", "pip", "list", "--format=freeze").splitlines()
    locked = {line.split()[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    ours = [line for line in listed if not line.startswith(("oomph==", "pip==", "setuptools=="))]
    assert {line.lower() for line in ours} <= locked
    assert not any("embedded" in line for line in ours)


def test_a_container_of_it_works_as_pid_1_without_root_and_without_a_writable_root(
    built: tuple[HostCopy, Image, Path], url: str, tmp_path: Path
) -> None:
    copy, image, sockets = built
    bench = Bench(url, tmp_path, None)  # type: ignore[arg-type]  # it starts no worker
    with Proxy(url) as proxy, (tmp_path / "log").open("w+b") as log:
        host = Path(str(conninfo_to_dict(proxy.url)["host"]))

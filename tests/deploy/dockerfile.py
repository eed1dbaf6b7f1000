"""Builds what a Dockerfile says over a copy of this host's root, where no Docker engine is: its very RUN lines, run.

`FROM` is taken to mean "an interpreter called python", which is this one. `COPY --from` finds what it wants where it
already is, because the stages share one root. What this project's file does not use is refused.
"""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from tests.deploy.host_copy import HostCopy


@dataclass
class Image:
    """What the last stage leaves for `docker run`."""

    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Each instruction with its arguments, lines joined."""
    lines = [line for line in dockerfile.read_text().splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def build(dockerfile: Path, context: Path, copy: HostCopy) -> Image:
    """Carry the instructions out in `copy`, minutes at most. Raises `AssertionError` with what a step said."""
    copy.run("sh", "-c", f"ln -sf {sys.executable} /usr/local/bin/python; rm -rf /opt/oomph /build")
    image = Image()
    for name, rest in instructions(dockerfile):
        match name:
            case "FROM":
                image = Image()
            case "ARG" | "EXPOSE" | "STOPSIGNAL":
                pass
            case "ENV":
                image.environment |= dict(pair.split("=", 1) for pair in shlex.split(rest))
            case "WORKDIR":
                image.folder = rest
                copy.run("mkdir", "-p", rest)
            case "USER":
                image.user = rest
            case "COPY" if not rest.startswith("--from="):
                *sources, target = rest.split()
                for source in sources:
                    _copy(context, source, copy, f"{image.folder}/{target}/")
            case "COPY":
                pass
            case "RUN":
                environment = [f"{key}={value}" for key, value in image.environment.items()]
                script = rest.removeprefix("--mount=type=cache,target=/root/.cache/pip ")  # pip's own is there
                copy.run("env", "-C", image.folder, *environment, "sh", "-ec", script, seconds=300)
            case "HEALTHCHECK":
                image.health = json.loads(rest.partition(" CMD ")[2])
            case "ENTRYPOINT":
                image.entrypoint = json.loads(rest)  # the exec form: no shell between the engine and the worker
            case "CMD":
                image.command = json.loads(rest)
            case _:
                raise AssertionError(f"this builder knows no {name}")
    return image


def _copy(context: Path, source: str, copy: HostCopy, target: str) -> None:
    """A file into the folder `target`, a folder's content too, as COPY does; but for what is ignored."""
    path = context / source
    folder = path if path.is_dir() else context
    packed = ["tar", "-C", str(folder), "--exclude=__pycache__", "-c", "." if path.is_dir() else source]
    assert is_sent(context, source), f"{source} is kept from the build by the ignore file"
    with subprocess.Popen(packed, stdout=subprocess.PIPE) as packing:
        unpack = copy.command("sh", "-c", 'mkdir -p "$1" && tar -C "$1" -x --no-same-owner', "sh", target)
        subprocess.run(unpack, stdin=packing.stdout, check=True, timeout=30)


def is_sent(context: Path, path: str) -> bool:
    """Whether the build may see this path, by the last rule of the ignore file that fits."""
    sent = True
    for line in (context / "deploy" / "docker" / "Dockerfile.dockerignore").read_text().split():
        if fnmatch(path, line.removeprefix("!")):
            sent = line.startswith("!")
    return sent

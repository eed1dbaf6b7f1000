"""The files in deploy/, read."""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
COMPOSE = DEPLOY / "docker" / "compose.yaml"
UNIT = DEPLOY / "systemd" / "oomph-worker@.service"

Object = dict[str, Any]

_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "Mi": 1 << 20, "Gi": 1 << 30}


def kustomize() -> list[str] | None:
    """The command that builds a kustomization; None where there is none here."""
    if shutil.which("kustomize"):
        return ["kustomize", "build"]
    return ["kubectl", "kustomize"] if shutil.which("kubectl") else None


@cache
def _built(folder: str) -> str:
    command = kustomize()
    assert command is not None
    path = str(KUBERNETES / folder)
    done = subprocess.run([*command, path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr, done.stderr
    return done.stdout


def manifests(folder: str) -> list[Object]:
    """What `kubectl apply -k` would send for a folder of deploy/kubernetes."""
    return list(yaml.safe_load_all(_built(folder)))


def deployments() -> dict[str, Object]:
    """By name."""
    found = [each for each in manifests("workers") if each["kind"] == "Deployment"]
    return {each["metadata"]["name"]: each for each in found}


def compose_workers() -> dict[str, Object]:
    """The services of the compose file that are workers, by name."""
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    return {name: each for name, each in services.items() if "WORKER_POOLS" in each.get("environment", {})}


def unit_value(name: str) -> str:
    """The last value of a directive in the worker's unit."""
    return str(re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)[-1])


def mib(text: str) -> int:
    """Of a size as Docker or Kubernetes writes it."""
    found = re.fullmatch(r"(\d+)([A-Za-z]*)", text)
    assert found, text
    return int(found[1]) * _SIZES[found[2]] // (1 << 20)


def environment(container: Object) -> dict[str, str]:
    """The plain variables of a container of Kubernetes."""
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}

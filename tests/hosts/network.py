"""Hosts in network namespaces, each with one link to a switch, which is a namespace too: nothing of it is seen outside.

host -- eth0 ===== port -- bridge -- port ===== eth0 -- host
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

NET = "198.18.0"  # of the range that is set aside for tests of network devices
EVERYBODY = f"{NET}.0/24"
PREFIX = "oomph-test-"
PROGRAMS = ("ip", "nsenter", "unshare", "setpriv")


class Host:
    """A network namespace with one address and a name of its own."""

    def __init__(self, network: "Network", name: str, number: int) -> None:
        self.name = name
        self.address = f"{NET}.{number}"
        self.namespace = f"{network.name}-{name}"
        self._switch = network.switch
        _ip("netns", "add", self.namespace)
        _ip("-n", self._switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        _ip("-n", self.namespace, "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", self.namespace, "link", "set", device, "up")
        _ip("-n", self._switch, "link", "set", name, "master", "bridge", "up")

    @property
    def enter(self) -> list[str]:
        """The command that starts another one on this host; that has its process, and is told the host's name."""
        return [
            *("nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "--uts"),
            *("sh", "-c", 'hostname "$0" && exec "$@"', self.name),
        ]

    def take_link_down(self) -> None:
        """Its own system sees it: there is no network any more."""
        _ip("-n", self.namespace, "link", "set", "eth0", "down")

    def unplug(self) -> None:
        """Nobody sees it: what is sent arrives nowhere."""
        _ip("-n", self._switch, "link", "set", self.name, "nomaster")

    def lose_answers_to(self, other: "Host") -> None:
        """What `other` sends arrives here, and what is answered does not arrive there."""
        _ip("-n", self.namespace, "route", "add", "blackhole", f"{other.address}/32")

    def heal(self) -> None:
        """Undo all of these."""
        _ip("-n", self.namespace, "link", "set", "eth0", "up")
        _ip("-n", self._switch, "link", "set", self.name, "master", "bridge")
        _ip("-n", self.namespace, "route", "flush", "type", "blackhole")


class Network:
    def __init__(self, name: str) -> None:
        self.name = name
        self.switch = f"{name}-switch"
        self._numbers = count(1)
        _ip("netns", "add", self.switch)
        _ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "bridge", "up")

    def add(self, name: str) -> Host:
        return Host(self, name, next(self._numbers))


@contextmanager
def new_network() -> Iterator[Network]:
    """A network for the time of the block. Skips where this process may not make one."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        pytest.skip(f"no hosts of our own: there is no {', '.join(missing)} here (Debian: iproute2, util-linux)")
    if os.geteuid() != 0:
        pytest.skip("no hosts of our own: only root may make network namespaces")
    _sweep()
    name = f"{PREFIX}{os.getpid()}"
    try:
        network = Network(name)
    except subprocess.CalledProcessError as error:
        _remove(name)
        pytest.skip(f"no hosts of our own: {error.stderr.strip()}")
    try:
        yield network
    finally:
        _remove(name)


def _sweep() -> None:
    """Remove what runs left that were killed."""
    for name in _namespaces():
        owner = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and not Path("/proc", owner).exists():
            _ip("netns", "delete", name)


def _remove(network: str) -> None:
    for name in _namespaces():
        if name.startswith(f"{network}-"):
            _ip("netns", "delete", name)


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _ip("netns", "list").splitlines() if line.strip()]


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True).stdout

"""A host that systemd runs: the real one, as PID 1 of namespaces of its own, over a copy of this host's root."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pools import cgroups
from pools.cgroups import Leaf
from pools.procfs import cgroup2_folder, slurp
from supervisor.testing import wait_for
from tests.deploy.host_copy import HostCopy, dying_with_us, first_child

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "deploy" / "systemd"
LOG = "/srv/log"

# No unit of this host is started, only the test's target and then ours: what these would ask for is left out.
_BOOT = """
set -e
umount --lazy /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/systemd/system
cp /srv/units/*.service /run/systemd/system/
printf '[Unit]\\nDefaultDependencies=no\\n' > /run/systemd/system/test.target
for unit in oomph-worker@.service oomph-migrate.service oomph-page.service; do
    mkdir /run/systemd/system/$unit.d
    cp /run/systemd/system/test.target /run/systemd/system/$unit.d/alone.conf
done
ln -s /dev/null /run/systemd/system/network-online.target
export container=unshare
exec /lib/systemd/systemd --system --unit=test.target --log-target=console --show-status=no
"""
# `ProtectHome=yes` would hide an interpreter that a developer has there; all else of a home stays hidden.
SHOW_PYTHON = f"[Service]\nProtectHome=tmpfs\nBindReadOnlyPaths={sys.base_prefix}\n"
_OOMPH = "#!/opt/oomph/bin/python\nfrom supervisor.commands import main\nmain()\n"


class SystemdHost:
    """Oomph is installed in /opt/oomph, as deploy/README.md has it; settings are for /etc/oomph/worker.env."""

    def __init__(self, copy: HostCopy, pid: int) -> None:
        self.copy = copy
        self._pid = pid

    def systemctl(self, *arguments: str, seconds: float = 60) -> str:
        return self.run("systemctl", *arguments, seconds=seconds)

    def run(self, *command: str, seconds: float = 60) -> str:
        """Run a command there, as root; its output. Raises `AssertionError` with the log where it fails."""
        inside = ["nsenter", "-t", str(self._pid), "-m", "-p", "-C", "-r", "-w", *command]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {done.stderr}\n{self.log()[-6000:]}")
        return done.stdout

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        told = self.systemctl("show", unit, "-p", ",".join(properties))
        return dict(line.split("=", 1) for line in told.splitlines())

    def drop_in(self, unit: str, text: str, name: str = "test") -> None:
        path = f"/run/systemd/system/{unit}.d/{name}.conf"
        write = ["nsenter", "-t", str(self._pid), "-m", "-r", "-w", "sh", "-c", 'mkdir -p "${1%/*}"; cat > "$1"']
        subprocess.run([*write, "sh", path], input=text, text=True, check=True, timeout=10)
        self.systemctl("daemon-reload")

    def cgroups(self, unit: str) -> dict[str, list[int]]:
        """The cgroups below that of a unit which have processes, and these, as the host numbers them."""
        root = Path(f"/proc/{self._pid}/root/sys/fs/cgroup")
        listed = [path for folder in root.rglob(f"{unit}.service") for path in folder.rglob("cgroup.procs")]
        found = {str(path.parent): [int(pid) for pid in path.read_text().split()] for path in listed}
        return {name: pids for name, pids in found.items() if pids}

    def log(self) -> str:
        """What the workers have logged."""
        return (self.copy.visible / LOG.lstrip("/")).read_text(errors="replace")


@contextmanager
def booted(folder: Path, sockets: Path, settings: dict[str, str]) -> Iterator[SystemdHost]:
    """A running systemd with our units. The folder of the database's socket is /srv/db there."""
    hierarchy = cgroup2_folder("0::/\n", slurp("/proc/self/mountinfo"))
    assert hierarchy is not None, "why_not() has said so"
    own = Path(hierarchy, f"oomph-test-{os.getpid()}-systemd")
    with HostCopy(folder) as copy:
        for shared, where in ((ROOT, "/opt/checkout"), (sockets, "/srv/db"), (UNITS, "/srv/units")):
            copy.share(shared, where)
        _install(copy, settings)
        own.mkdir()
        namespaces = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--cgroup"]
        boot = dying_with_us(copy.command("sh", "-c", _BOOT, unshare=namespaces))
        with (folder / "console").open("wb") as console:
            systemd = subprocess.Popen(
                ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(own), *boot],
                stdout=console,
                stderr=subprocess.STDOUT,
            )
        try:
            pid = wait_for(lambda: first_child(systemd.pid), "PID 1 of the test's host")
            host = SystemdHost(copy, pid)
            wait_for(lambda: _is_up(host), "a systemd that answers", 20)
            yield host
        finally:
            Leaf(own).kill()
            systemd.kill()
            systemd.wait()
            assert cgroups.remove_tree(own)


def _install(copy: HostCopy, settings: dict[str, str]) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = f"/opt/oomph/lib/{version}/site-packages"
    copy.run(f"{sys.base_prefix}/bin/{version}", "-I", "-m", "venv", "--without-pip", "/opt/oomph")
    copy.write(f"{packages}/oomph.pth", f"/opt/checkout/.venv/lib/{version}/site-packages\n/opt/checkout\n")
    copy.write("/opt/oomph/bin/oomph", _OOMPH)
    copy.run("chmod", "755", "/opt/oomph/bin/oomph")
    copy.write("/etc/oomph/worker.env", "".join(f"{name}={value}\n" for name, value in settings.items()))
    copy.write(LOG, "")
    copy.run("systemd-sysusers", "/srv/units/sysusers.conf")


def _is_up(host: SystemdHost) -> bool:
    try:
        host.systemctl("is-active", "test.target", seconds=5)
    except (AssertionError, subprocess.TimeoutExpired):
        return False
    return True

"""A child that waits at its gate, before any job is its own."""

import asyncio
import os
import signal
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field

from pools import process
from pools.cgroups import Leaf
from pools.memory import Baseline
from pools.scratch import Scratch
from pools.spawner import Spawner
from pools.template_hold import SpawnFailed


@dataclass(eq=False)
class Newborn:
    """A child, our ends of what leads to it, and what every job is given. Belongs to the loop."""

    mark: int
    pid: int
    pidfd: int
    gate: socket.socket
    frames_fd: int  # the gate's other name, for whoever reads from it
    output_fd: int
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    baseline: Baseline = field(default_factory=Baseline)
    scratch: Scratch | None = None
    scratch_device: int = 0
    leaf: Leaf | None = None

    @classmethod
    async def born(cls, spawner: Spawner, mark: int) -> "Newborn":
        """Have a child made and take hold of it. Raises `SpawnFailed`.

        Where this fails or is cancelled half-way, the child finds its gate closed and exits.
        """
        with ExitStack() as ours, ExitStack() as theirs:
            try:
                gate, their_socket = socket.socketpair()
                ours.callback(gate.close)
                theirs.callback(their_socket.close)
                output_fd, their_output = os.pipe()
                ours.callback(os.close, output_fd)
                theirs.callback(os.close, their_output)
                pid = await spawner.spawn(mark, their_socket.fileno(), their_output)
                pidfd = os.pidfd_open(pid)
                ours.callback(os.close, pidfd)
                frames_fd = os.dup(gate.fileno())
            except OSError as error:
                raise SpawnFailed(f"{error.strerror}, making a child") from error
            gate.setblocking(False)
            ours.pop_all()
        newborn = cls(mark, pid, pidfd, gate, frames_fd, output_fd)
        asyncio.get_running_loop().add_reader(pidfd, newborn._has_exited)
        return newborn

    def hand_over(self) -> None:
        """From now on its descriptors are the caller's."""
        asyncio.get_running_loop().remove_reader(self.pidfd)

    async def end(self) -> None:
        """Kill it, and wait until it is reaped. Nothing ran in it, so there is no tree, and nobody is told."""
        process.send(self.pidfd, signal.SIGKILL)
        await self.exited.wait()
        process.reap(self.pid)
        self.gate.close()
        for descriptor in (self.pidfd, self.frames_fd, self.output_fd):
            os.close(descriptor)

    def _has_exited(self) -> None:
        asyncio.get_running_loop().remove_reader(self.pidfd)
        self.exited.set()

"""The frames between supervisor, template and child: a closed set of values, and their bounded transport.

A child is on a stream, `length (4 bytes, big endian) | JSON`, because a result may be larger than a datagram; the
template is on SOCK_SEQPACKET, one frame a packet, because descriptors travel with its requests. What a child sends
is judged as hostile: anything that is too long, is not valid or stays unfinished is no frame at all, and nothing
after it is read.
"""

import socket
import struct
from datetime import datetime
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator
from pydantic_core import from_json

from jobs.outcome import MAX_FRAMES_CHARS, MAX_MESSAGE_CHARS, MAX_RESULT_BYTES

_HEADER = struct.Struct("!I")
# A result is JSON text inside a JSON string, where every quote and backslash doubles; the rest is small and bounded.
MAX_FRAME_BYTES = 2 * MAX_RESULT_BYTES + (64 << 10)
MAX_NOTE_CHARS = 500  # a progress note is one line on a page
MAX_PACKET_BYTES = 64 << 10  # below the kernel's default send buffer of 208 KiB, so a packet never blocks


class _Frame(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class UserFrame(_Frame):
    """The user that a job runs as."""

    uid: int
    gid: int
    groups: list[int]
    name: str


class Setup(_Frame):
    """What encloses a child before anything of the job runs in it. Sizes are MiB; limits of 0 are not set.

    `readable` None leaves the paths of the file system alone; else `writable` are so besides `scratch`.
    """

    supervisor: int
    scratch: str
    user: UserFrame | None
    readable: list[str] | None
    writable: list[str]
    open_files: int
    file_mb: int
    processes: int
    shm_mb: int  # of a /dev/shm of its own; 0 leaves it the one that all share


class JobFrame(_Frame):
    """Opens a child's gate: the job, and the limits that depend on it."""

    id: int
    claim: int
    kind: str
    payload: str
    attempt: int
    organization_id: str | None
    trace_context: str | None  # of the attempt's span, where the worker traces
    deadline: datetime
    memory_mb: int
    cpu_seconds: int


class AtGate(_Frame):
    """A child that was executed, not forked, has loaded the app and waits for its job."""

    frame: Literal["at_gate"] = "at_gate"


class Starting(_Frame):
    """The child is set up; what comes next is the job's own code, and so may be every frame after this one."""

    frame: Literal["starting"] = "starting"


class Progress(_Frame):
    frame: Literal["progress"] = "progress"
    fraction: float = Field(ge=0, le=1, allow_inf_nan=False)
    note: str = Field(max_length=MAX_NOTE_CHARS)


class Success(_Frame):
    """The handler returned. `result` is JSON text."""

    frame: Literal["success"] = "success"
    result: str | None = Field(None, max_length=MAX_RESULT_BYTES)
    completed_in: bool = False

    @field_validator("result")
    @classmethod
    def _is_json(cls, result: str | None) -> str | None:
        if result is not None:
            from_json(result)
        return result


class Failure(_Frame):
    """The handler raised. `memory` says what its chain of exceptions tells of exhausted memory, if anything."""

    frame: Literal["failure"] = "failure"
    type: str = Field(max_length=MAX_MESSAGE_CHARS)
    message: str = Field(max_length=MAX_MESSAGE_CHARS)
    frames: str = Field("", max_length=MAX_FRAMES_CHARS)
    permanent: bool = False
    memory: str = Field("", max_length=MAX_MESSAGE_CHARS)
    lost_helper: bool = False  # the sign is a helper process that died by SIGKILL: only a counter can say of what


class Snoozing(_Frame):
    frame: Literal["snoozing"] = "snoozing"
    seconds: float = Field(ge=0, allow_inf_nan=False)


class Unborn(_Frame):
    """The child could not be set up; its handler never ran. Never after `Starting`: a job must not forge its refund."""

    frame: Literal["unborn"] = "unborn"
    why: str = Field(max_length=MAX_MESSAGE_CHARS)


LastFrame = Success | Failure | Snoozing | Unborn
ChildFrame = AtGate | Starting | Progress | LastFrame
_child_frames: TypeAdapter[ChildFrame] = TypeAdapter(Annotated[ChildFrame, Field(discriminator="frame")])
F = TypeVar("F", bound=_Frame)


class Ready(_Frame):
    """The template serves. Its sizes are in MiB: what it can write to, and what it has.

    `forks_twice` says why, where one fork does not suffice.
    """

    frame: Literal["ready"] = "ready"
    data_mb: float
    rss_mb: float
    forks_twice: str = ""


class Loading(_Frame):
    """What the template begins to load: where it ends without a word, that is what ended it."""

    frame: Literal["loading"] = "loading"
    step: str = Field(max_length=MAX_MESSAGE_CHARS)


class Refused(_Frame):
    """The template will not serve, for a reason that is written for a person."""

    frame: Literal["refused"] = "refused"
    why: str


class Spawn(_Frame):
    """Asks the template for a child; the descriptors of its job socket and its output pipe travel along."""

    frame: Literal["spawn"] = "spawn"
    sequence: int
    mark: int


class Ping(_Frame):
    """Asks the template whether it still serves."""

    frame: Literal["ping"] = "ping"
    sequence: int


class Spawned(_Frame):
    frame: Literal["spawned"] = "spawned"
    sequence: int
    pid: int


class NotSpawned(_Frame):
    frame: Literal["not_spawned"] = "not_spawned"
    sequence: int
    why: str


class Pong(_Frame):
    frame: Literal["pong"] = "pong"
    sequence: int


Request = Spawn | Ping
_requests: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="frame")])
TemplateFrame = Loading | Ready | Refused | Spawned | NotSpawned | Pong
_template_frames: TypeAdapter[TemplateFrame] = TypeAdapter(Annotated[TemplateFrame, Field(discriminator="frame")])


def pack(frame: BaseModel) -> bytes:
    """The frame as bytes for a stream. Raises `ValueError` where it is longer than any reader takes."""
    body = frame.model_dump_json().encode()
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}")
    return _HEADER.pack(len(body)) + body


def packet(frame: BaseModel) -> bytes:
    """The frame as one packet."""
    return frame.model_dump_json().encode()


def parse_packet(data: bytes) -> TemplateFrame:
    """Raises `ValueError` for anything but a frame of a template."""
    return _template_frames.validate_json(data)


def parse_request(data: bytes) -> Request:
    """What the supervisor wants of its template."""
    return _requests.validate_json(data)


def receive(connection: socket.socket, kind: type[F]) -> F | None:
    """Block until the supervisor's next frame is there; None where the other side closes first."""
    length = _receive_exactly(connection, _HEADER.size)
    body = length and _receive_exactly(connection, _HEADER.unpack(length)[0])
    return kind.model_validate_json(body) if body else None


def _receive_exactly(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


class FrameReader:
    """Collects the frames of one child from whatever pieces arrive.

    `last` is the first frame that ends the attempt; nothing after it counts. `broken` says why reading stopped early.
    `count` grows with the work that its child makes for us.
    """

    def __init__(self) -> None:
        self.last: LastFrame | None = None
        self.broken: str | None = None
        self.at_gate = False
        self.count = 0
        self.has_started = False
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Progress | None:
        """Take more bytes; return the newest progress among the frames they completed."""
        newest: Progress | None = None
        if self.last is not None or self.broken is not None:
            self.count += 1  # it still costs a look
            return None
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                self._break(f"it announced a frame of {length} bytes; {MAX_FRAME_BYTES} is the limit")
                break
            end = _HEADER.size + length
            if len(self._buffer) < end:
                break
            body = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            self.count += 1
            try:
                frame = _child_frames.validate_json(body)
            except ValueError:
                self._break(f"it sent {length} bytes that are no frame")
                break
            if isinstance(frame, Progress):
                newest = frame
            elif isinstance(frame, AtGate):
                self.at_gate = True
            elif isinstance(frame, Starting):
                self.has_started = True
            elif isinstance(frame, Unborn) and self.has_started:
                self._break("it said that its handler never ran, after that had begun")
                break
            else:
                self.last = frame
                self._buffer.clear()
        return newest

    def _break(self, why: str) -> None:
        self.broken = why
        self._buffer.clear()

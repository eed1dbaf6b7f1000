"""What the attempts of one pool `ingest` share."""

from dataclasses import dataclass, field

from pools.cgroups import Leaves
from pools.frames import UserFrame
from pools.oom import OomWatch
from pools.options import IngestOptions
from pools.roster import Roster
from pools.scratch import ScratchFolders
from pools.spawner import Spawner
from pools.threads import Threads


@dataclass(eq=False)
class Household:
    spawner: Spawner
    roster: Roster
    oom: OomWatch
    options: IngestOptions
    slots: int
    scratches: ScratchFolders
    user: UserFrame | None = None
    readable: list[str] | None = None
    writable: list[str] = field(default_factory=list)
    leaves: Leaves | None = None
    has_own_shm: bool = False

    def __post_init__(self) -> None:
        self.threads = Threads("ingest", 2)
        self.disk = Threads("disk", 1)  # by itself: a folder of a million files must hold up no verdict

"""What a template holds lies in huge pages, for short forks; a child still copies small ones."""

import json
import re
from pathlib import Path

import pytest

from pools.huge_pages import _MAPPING, _pieces
from pools.procfs import parse_sizes
from tests.pools.huge_app import FREED_MB, FULL_MB, HOLLOW_MB, READ_MB
from tests.pools.kitchen import Kitchen, open_kitchen, result_of

HUGE = "tests.pools.huge_app:app"
MIB = 1 << 20


def _can_collapse() -> bool:
    release = re.match(r"(\d+)\.(\d+)", Path("/proc/sys/kernel/osrelease").read_text())
    mode = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    assert release is not None
    return (int(release[1]), int(release[2])) >= (6, 1) and mode.exists() and "[never]" not in mode.read_text()


def sizes_of_template(kitchen: Kitchen) -> dict[str, int]:
    template = kitchen.pool._spawner.pid
    assert template is not None
    return parse_sizes(Path(f"/proc/{template}/smaps_rollup").read_text())


@pytest.mark.skipif(not _can_collapse(), reason="needs Linux 6.1, and huge pages that are not switched off")
async def test_what_is_full_lies_in_huge_pages_and_what_is_hollow_or_only_read_or_freed_stays_as_it_was() -> None:
    async with open_kitchen(spec=HUGE) as kitchen:
        sizes = sizes_of_template(kitchen)
        assert sizes["AnonHugePages"] >= FULL_MB // 2 * 1024
        assert sizes["Anonymous"] < (FULL_MB + FREED_MB + min(HOLLOW_MB, READ_MB)) * 1024
        assert sizes["LazyFree"] == FREED_MB * 1024
        # Of its 64 huge pages, each of which it writes to, a child copies a small one.
        told = json.loads(result_of(await kitchen.cook("write")))
        assert told["copied kB"] < 2 * FULL_MB * 4
        assert sizes_of_template(kitchen)["AnonHugePages"] >= FULL_MB // 2 * 1024


def test_whole_pieces_of_private_mappings_are_looked_at() -> None:
    def mapping(
        first: int, last: int, access: str = "rw-p", inode: int = 0, anonymous_kb: int | None = None, freed_kb: int = 0
    ) -> str:
        kb = (last - first) >> 10 if anonymous_kb is None else anonymous_kb
        sizes = f"Size: 1 kB\nAnonymous: {kb:>14} kB\nKSM: 0 kB\nLazyFree: {freed_kb:>15} kB\nVmFlags: rd\n"
        return f"{first:x}-{last:x} {access} 00000000 00:00 {inode} \n{sizes}"

    text = "".join(
        [
            mapping(1 * MIB, 7 * MIB),  # from 2 to 6
            mapping(8 * MIB, 10 * MIB, anonymous_kb=1800),  # holds less than one
            mapping(11 * MIB, 13 * MIB),  # none is whole
            mapping(14 * MIB, 16 * MIB, inode=77),  # of a file
            mapping(16 * MIB, 18 * MIB, access="rw-s"),
            mapping(18 * MIB, 20 * MIB, access="r--p"),
            mapping(20 * MIB, 22 * MIB),
            mapping(24 * MIB, 26 * MIB, freed_kb=4),
        ]
    )
    assert [piece // MIB for piece in _pieces(text, 2 * MIB)] == [2, 4, 20]


def test_the_kernel_still_writes_what_is_parsed() -> None:
    assert _MAPPING.search(Path("/proc/self/smaps").read_text())

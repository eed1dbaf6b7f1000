from pathlib import Path, PurePosixPath

import pytest

from supervisor.settings import SettingsError
from supervisor.sizing import LIMIT_FILES, RESERVED_MB, available_memory_mb, cgroup_limits, choose_slots


@pytest.mark.parametrize(
    ("requested", "memory_mb", "cores", "available_mb", "slots"),
    [
        (0, 1024, 8, 64_000, 8),  # as many as there are processors
        (0, 1024, 8, 4_100, 4),  # fewer where memory allows fewer
        (0, 1024, 8, 1_024, 1),
        (0, 64, 0, 1_024, 1),  # a host that does not tell its processors
        (20, 1024, 8, 64_000, 20),  # who asks gets what fits, whatever the processors
        (4, 1024, 8, 4_096, 4),
    ],
)
def test_slots_fit_processors_and_memory(
    requested: int, memory_mb: int, cores: int, available_mb: int, slots: int
) -> None:
    assert choose_slots(requested, memory_mb, cores, available_mb) == slots


def test_more_than_fits_is_refused_with_the_largest_number_that_fits() -> None:
    with pytest.raises(SettingsError) as refused:
        choose_slots(5, 1024, 8, 4_096)
    for told in ("WORKER_INGEST_CONCURRENCY=5", "WORKER_INGEST_MEMORY_MB=1024", "5,120 MB", "4,096 MB", "1 to 4"):
        assert told in str(refused.value)


@pytest.mark.parametrize("requested", [0, 1])
def test_a_host_too_small_for_one_child_is_refused(requested: int) -> None:
    with pytest.raises(SettingsError, match="allowed are 1 to 1000"):
        choose_slots(requested, 1024, 8, 1_000)
    with pytest.raises(SettingsError, match="no limit would fit"):
        choose_slots(requested, 1024, 8, -100)


def test_this_hosts_memory_is_read() -> None:
    total_mb = int(Path("/proc/meminfo").read_text().split()[1]) // 1024
    assert -RESERVED_MB < available_memory_mb() <= total_mb - RESERVED_MB


@pytest.mark.parametrize("version", [1, 2])
def test_the_limits_of_all_cgroups_above_count(version: int, tmp_path: Path) -> None:
    inner = tmp_path / "slice" / "container" / "worker"
    inner.mkdir(parents=True)
    for folder, limit in ((inner, "max\n"), (inner.parent, "2097152\n"), (inner.parents[1], "1048576\n")):
        (folder / LIMIT_FILES[version]).write_text(limit)
    assert cgroup_limits(version, PurePosixPath(inner)) == [2_097_152, 1_048_576]

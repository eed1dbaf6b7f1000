"""A monitor of one worker: asks it as Prometheus and an orchestrator do, and reads the answers as they would."""

import urllib.error
import urllib.request
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from supervisor.testing import WorkerProcess, wait_for
from tests.worker.conftest import Bench


@dataclass(frozen=True)
class Monitor:
    """Asks one worker, as Prometheus and an orchestrator do."""

    address: str

    def get(self, path: str, seconds: float = 10.0) -> tuple[int, str]:
        """Status and text. Raises `TimeoutError` where the answer takes longer."""
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=seconds) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def families(self) -> dict[str, Metric]:
        status, text = self.get("/metrics")
        assert status == 200
        return {family.name: family for family in text_string_to_metric_families(text)}

    def value(self, sample_name: str, **labels: str) -> float | None:
        """One sample, None where there is none."""
        for family in self.families().values():
            for sample in family.samples:
                if sample.name == sample_name and sample.labels.items() >= labels.items():
                    return sample.value
        return None

    def wait_value(self, sample_name: str, at_least: float, seconds: float = 20.0, **labels: str) -> float:
        def look() -> float | None:
            value = self.value(sample_name, **labels)
            return value if value is not None and value >= at_least else None

        return wait_for(look, f"{sample_name}{labels} >= {at_least:g}", seconds)

    def wait_ready(self, status: int, why: str = "", seconds: float = 20.0) -> None:
        """Wait until /readyz answers this status, for this reason."""

        def look() -> bool:
            answered, told = self.get("/readyz")
            return answered == status and why in told

        wait_for(look, f"/readyz {status} {why}", seconds)


def monitor_of(worker: WorkerProcess) -> Monitor:
    return Monitor(worker.wait_log(r"metrics and health on http://(\S+)")[1])


def watched(bench: Bench, url: str | None = None, **settings: str) -> tuple[WorkerProcess, Monitor]:
    worker = bench.start(url, WORKER_HTTP="0", **settings)
    return worker, monitor_of(worker)

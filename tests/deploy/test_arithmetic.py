"""The figures in deploy/ follow from the code: what is changed in one place without the other fails here."""

import re

import pytest

from jobs.task import Pool
from pools import ingest, life, nursery, template_hold
from supervisor import loop, worker
from supervisor.settings import Settings, load_settings
from supervisor.shutdown import EXIT_SECONDS, grace_seconds
from supervisor.sizing import RESERVED_MB, choose_slots
from supervisor.target import CONNECT_SECONDS
from tests.deploy.files import (
    DEPLOY,
    Object,
    compose_workers,
    deployments,
    environment,
    kustomize,
    manifests,
    mib,
    unit_value,
)

IMPORT_SECONDS = 30  # of the app by the worker itself, before its template does the same
TEMPLATE_MB = 128  # of a preloaded template that a child may copy: that of the documents has 72
ROOM_MB = 256  # between what is given to children and the limit of the whole

needs_kustomize = pytest.mark.skipif(kustomize() is None, reason="neither kubectl nor kustomize is installed here")


def grace(variables: dict[str, str]) -> float:
    return grace_seconds(float(variables.get("WORKER_SHUTDOWN_SECONDS", Settings().worker_shutdown_seconds)))


def test_the_end_of_a_worker_is_bounded_by_what_its_steps_are_bounded_by() -> None:
    steps = {
        "outcomes that are not written yet": worker.END_SECONDS,
        "attempts that began meanwhile": worker.END_SECONDS,
        "children": ingest.STOP_SECONDS,
        "what is still being removed": ingest.LINGER_SECONDS,
        "the template, and with it the child for the next job": max(
            template_hold.LEAVE_SECONDS + template_hold.STUCK_SECONDS, nursery.END_SECONDS
        ),
        "empty folders": nursery.REMOVE_SECONDS,
        "the database": worker.LEAVE_SECONDS,
        "tasks and threads of jobs": loop.CANCEL_SECONDS + loop.IDLE_SECONDS,
    }
    assert sum(steps.values()) <= EXIT_SECONDS, steps
    assert ingest.STOP_SECONDS > life.STUCK_SECONDS, "a child that survives SIGKILL is given up before the pool is"


def test_systemd_waits_as_long_as_a_worker_may_take() -> None:
    assert float(unit_value("TimeoutStopSec")) >= grace({})
    assert float(unit_value("TimeoutStartSec")) >= IMPORT_SECONDS + CONNECT_SECONDS + template_hold.START_SECONDS


@pytest.mark.parametrize("name", compose_workers())
def test_docker_waits_as_long_as_a_worker_may_take(name: str) -> None:
    service = compose_workers()[name]
    assert float(service["stop_grace_period"].removesuffix("s")) >= grace(service["environment"])


@needs_kustomize
def test_kubernetes_waits_as_long_as_a_worker_may_take() -> None:
    (settings,) = (each["data"] for each in manifests("workers") if each["kind"] == "ConfigMap")
    assert set(deployments()) == {f"oomph-{pool}" for pool in Pool}
    for name, deployment in deployments().items():
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["terminationGracePeriodSeconds"] >= grace({**settings, **environment(container)})
        assert environment(container)["WORKER_POOLS"] == name.removeprefix("oomph-")
        startup = container["startupProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] >= IMPORT_SECONDS + CONNECT_SECONDS
        liveness = container["livenessProbe"]
        # The same patience with a blocked loop everywhere.
        assert liveness["periodSeconds"] * liveness["failureThreshold"] == float(unit_value("WatchdogSec"))


def test_a_blocked_loop_is_not_killed_before_the_lease_could_be_lost() -> None:
    assert float(unit_value("WatchdogSec")) > Settings().worker_lease_seconds


def fits(variables: dict[str, str], limit_mb: int, scratch_mb: int, memory_backed: bool) -> None:
    """The memory of a worker with children: what it reckons itself, and the room that nobody may use."""
    given = {name.lower(): value for name, value in variables.items() if name.startswith("WORKER_INGEST")}
    settings = load_settings(**given)
    slots, budget = settings.worker_ingest_concurrency, settings.worker_ingest_budget_mb
    each = settings.worker_ingest_memory_mb + TEMPLATE_MB
    assert choose_slots(slots, settings.worker_ingest_memory_mb, slots, limit_mb - RESERVED_MB) == slots
    assert slots * each <= budget
    assert slots * settings.worker_ingest_scratch_mb <= scratch_mb
    assert budget + RESERVED_MB + ROOM_MB + (scratch_mb if memory_backed else 0) <= limit_mb


def test_the_children_of_the_compose_file_fit_into_its_limit() -> None:
    service: Object = compose_workers()["ingest"]
    (scratch,) = (mib(part.partition("size=")[2].split(",")[0]) for part in service["tmpfs"])
    fits(service["environment"], mib(service["mem_limit"]), scratch, memory_backed=True)


@needs_kustomize
def test_the_children_of_the_kubernetes_manifests_fit_into_their_limit() -> None:
    pod = deployments()["oomph-ingest"]["spec"]["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    limit = mib(container["resources"]["limits"]["memory"])
    assert limit == mib(container["resources"]["requests"]["memory"]), "memory that is not there cannot be given back"
    fits(environment(container), limit, mib(volume["emptyDir"]["sizeLimit"]), memory_backed=False)


@needs_kustomize
def test_a_scaler_reckons_with_the_slots_of_a_worker() -> None:
    slots = {
        "oomph-agent": Settings().concurrency(Pool.AGENT),
        "oomph-ingest": int(environment(_container("oomph-ingest"))["WORKER_INGEST_CONCURRENCY"]),
    }
    scalers = [each for each in manifests("keda") if each["kind"] == "ScaledObject"]
    found = {
        each["metadata"]["name"]: int(trigger["metadata"]["targetQueryValue"])
        for each in scalers
        for trigger in each["spec"]["triggers"]
        if trigger["name"] == "jobs"
    }
    assert found == slots


def test_every_variable_and_every_file_that_deploy_names_exists() -> None:
    settings = {name.upper() for name in Settings.model_fields}
    for path in (each for each in DEPLOY.rglob("*") if each.is_file()):
        text = path.read_text()
        assert set(re.findall(r"WORKER_[A-Z_]+", text)) <= settings, path
        for named in re.findall(r"\bdeploy/[\w./@-]+\w", text):
            assert (DEPLOY.parent / named).exists(), (path, named)


def _container(deployment: str) -> Object:
    container: Object = deployments()[deployment]["spec"]["template"]["spec"]["containers"][0]
    return container

"""The manifests, against the schemas of the API and of KEDA, and KEDA's queries against a real database."""

import inspect

import kubernetes_validate
import pytest
from cloudcoil.models.keda.v1alpha1 import ScaledObject, TriggerAuthentication

from jobs import Pool
from jobs.store import JobStore
from supervisor.commands.page import page
from supervisor.page.health import ANSWER_SECONDS, Health
from supervisor.page.reading import PageDatabase
from supervisor.page.serving import GRACE_SECONDS
from tests.deploy.files import Object, deployments, kustomize, manifests
from tests.jobs.lab import Connection, hire

VERSIONS = ("1.29", "1.33", "1.37")  # the oldest in which all of it is stable, a usual one and the newest known here
KEDA = {"ScaledObject": ScaledObject, "TriggerAuthentication": TriggerAuthentication}
OF_POSTGRESQL = {"query", "targetQueryValue", "activationTargetQueryValue"}
MOST_BUFFERS = 2_000  # pages of 8 KiB that one query may read, whatever waits

pytestmark = pytest.mark.skipif(kustomize() is None, reason="neither kubectl nor kustomize is installed here")


@pytest.mark.parametrize("folder", ["workers", "migrate", "keda", "page"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_api_knows_every_field(folder: str, version: str) -> None:
    for manifest in manifests(folder):
        if manifest["kind"] not in KEDA:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_keda_knows_every_field() -> None:
    """What its definitions do not know is dropped in silence: what was read must be all that was written.

    They leave open what a trigger of one type knows, so that is compared with what its documentation lists.
    """
    found = [each for each in manifests("keda") if each["kind"] in KEDA]
    assert len(found) == 3
    for manifest in found:
        read = KEDA[manifest["kind"]].model_validate(manifest)
        assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == manifest
        for trigger in manifest["spec"].get("triggers", []):
            assert trigger["type"] == "postgresql"
            assert {"query", "targetQueryValue"} <= trigger["metadata"].keys() <= OF_POSTGRESQL
        assert all(each["parameter"] == "connection" for each in manifest["spec"].get("secretTargetRef", []))


def test_what_is_scaled_and_named_exists() -> None:
    everything = manifests("keda")
    names = {(each["kind"], each["metadata"]["name"]) for each in everything}
    for each in everything:
        assert each["metadata"]["namespace"] == "oomph"
        if each["kind"] == "ScaledObject":
            assert ("Deployment", each["spec"]["scaleTargetRef"]["name"]) in names
            for trigger in each["spec"]["triggers"]:
                assert ("TriggerAuthentication", trigger["authenticationRef"]["name"]) in names
        if each["kind"] == "PodDisruptionBudget":
            pods = deployments()[each["metadata"]["name"]]["spec"]["template"]["metadata"]["labels"]
            assert each["spec"]["selector"]["matchLabels"].items() <= pods.items()


def test_a_pod_is_restricted_as_the_strictest_standard_of_the_cluster_wants() -> None:
    pods = [each["spec"]["template"]["spec"] for each in (*deployments().values(), *manifests("migrate"), the_page())]
    assert len(pods) == len(Pool) + 2
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }


def the_page() -> Object:
    (found,) = (each for each in manifests("page") if each["kind"] == "Deployment")
    return found


def test_the_page_is_reached_by_its_service_and_asked_at_addresses_that_it_has() -> None:
    (service,) = (each["spec"] for each in manifests("page") if each["kind"] == "Service")
    template = the_page()["spec"]["template"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    for deployment in deployments().values():  # and by no other
        assert not service["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    assert service["ports"][0]["targetPort"] == container["ports"][0]["name"]
    default = inspect.signature(page).parameters["port"].default
    assert container["ports"][0]["containerPort"] == default
    there = {route.path for route in Health(PageDatabase("")).routes()}
    probes = [container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert {probe["path"] for probe in probes} <= there
    assert {probe["port"] for probe in probes} == {container["ports"][0]["name"]}
    assert container["readinessProbe"]["timeoutSeconds"] > ANSWER_SECONDS
    assert template["spec"]["terminationGracePeriodSeconds"] > GRACE_SECONDS


def test_the_page_reads_its_tokens_from_a_secret_that_follows() -> None:
    spec = the_page()["spec"]["template"]["spec"]
    (volume,), (container,) = spec["volumes"], spec["containers"]
    (mount,) = container["volumeMounts"]
    assert "subPath" not in mount, "such a file stays as it was"
    assert f"--token-file={mount['mountPath']}/tokens" in container["args"]
    mode = volume["secret"]["defaultMode"]
    assert mode & 0o007 == 0
    assert mode & 0o040, "the files are root's, of the group that is fsGroup"
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]


def test_a_worker_takes_secrets_where_there_are_any() -> None:
    for deployment in deployments().values():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        secrets = [each["secretRef"] for each in container["envFrom"] if "secretRef" in each]
        assert secrets == [{"name": "oomph-secrets", "optional": True}]


def queries(pool: Pool) -> dict[str, str]:
    """KEDA's questions about a pool, by the trigger's name."""
    (found,) = (
        each
        for each in manifests("keda")
        if each["kind"] == "ScaledObject" and each["metadata"]["name"] == f"oomph-{pool}"
    )
    return {trigger["name"]: trigger["metadata"]["query"] for trigger in found["spec"]["triggers"]}


def answers(db: Connection, pool: Pool) -> dict[str, int]:
    """What KEDA would be told: one whole number each."""
    found = {}
    for name, query in queries(pool).items():
        ((found[name],),) = db.execute(query.encode()).fetchall()
        assert type(found[name]) is int
    return found


async def test_a_pool_is_scaled_by_what_its_workers_could_take_and_by_what_they_have(
    db: Connection, store: JobStore
) -> None:
    worker = await hire(store)
    assert answers(db, Pool.INGEST) == {"jobs": 0, "age": 0}
    row = "INSERT INTO background_jobs (kind, pool, run_after, blocked, concurrency_key, status, worker_id) VALUES "
    db.execute(row + "('parcel', 'ingest', now() - interval '90 seconds', false, NULL, 'queued', NULL)")
    told = answers(db, Pool.INGEST)
    assert told["jobs"] == 1
    assert 90 <= told["age"] < 120
    db.execute(
        row
        + f"""
        ('parcel', 'ingest', now() - interval '1 day', false, NULL, 'running', '{worker.id}'),
        ('parcel', 'ingest', now() - interval '1 day', false, NULL, 'succeeded', NULL),
        ('parcel', 'ingest', now() - interval '1 day', true, 'key', 'queued', NULL),
        ('parcel', 'ingest', now() + interval '1 day', false, NULL, 'queued', NULL),
        ('letter', 'system', now() - interval '1 day', false, NULL, 'queued', NULL)
        """
    )
    assert answers(db, Pool.INGEST) == {"jobs": 2, "age": told["age"]}
    db.execute(row + "('parcel', 'ingest', '-infinity', false, NULL, 'queued', NULL)")
    assert answers(db, Pool.INGEST) == {"jobs": 3, "age": 86_400}
    db.execute("UPDATE background_kinds SET paused_at = now() WHERE kind = 'parcel'")
    assert answers(db, Pool.INGEST) == {"jobs": 1, "age": 0}  # one still runs; nobody could take another


@pytest.mark.parametrize("organizations", ["none", "some"])
@pytest.mark.parametrize("analyzed", [False, True])
async def test_a_question_costs_the_same_however_much_waits(
    db: Connection, store: JobStore, analyzed: bool, organizations: str
) -> None:
    await hire(store)
    for status in ("queued", "succeeded"):
        db.execute(
            "INSERT INTO background_jobs (kind, pool, priority, run_after, status, organization_id) "
            "SELECT 'parcel', 'ingest', n %% 3, now() - n * interval '1 ms', %s,"
            " CASE WHEN n %% 7 > 0 AND %s = 'some' THEN 'org ' || n %% 7 END FROM generate_series(1, 50000) AS n",
            [status, organizations],
        )
    if analyzed:
        db.execute("VACUUM ANALYZE background_jobs, background_kinds, background_workers")
    assert answers(db, Pool.INGEST)["jobs"] == 1000
    for name, query in queries(Pool.INGEST).items():
        ((plan,),) = db.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + query.encode()).fetchall()
        top = plan[0]["Plan"]
        read = top["Shared Hit Blocks"] + top["Shared Read Blocks"]
        assert read <= MOST_BUFFERS, (name, plan)


def test_the_pools_are_asked_the_same_question() -> None:
    asked = {pool: str(queries(pool)).replace(f"'{pool}'", "'pool'") for pool in (Pool.AGENT, Pool.INGEST)}
    assert asked[Pool.AGENT] == asked[Pool.INGEST]

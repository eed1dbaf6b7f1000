"""A kit for chaos tests of your own handlers; the fixtures come with the pytest plugin that this package registers.

oomph_server     the URL of a throw-away PostgreSQL, one for the whole run (needs the extra `embedded`)
oomph_database   the URL of a fresh, migrated database on it
oomph_kit        a `Kit` on such a database: starts real workers, kills children, waits for verdicts

def test_a_killed_import_is_tried_again(oomph_kit):
    oomph_kit.start("app.background.handlers:production", WORKER_RETRY_DELAY_SECONDS="0")
    job_id = oomph_kit.enqueue(IMPORT_LEDGER, ImportLedger(ledger_id=7))
    oomph_kit.kill_child(job_id)
    oomph_kit.wait_for(job_id, "killed")      # a verdict
    oomph_kit.wait_for(job_id, "succeeded")   # or a status

def test_the_handler_itself(oomph_kit):
    assert oomph_kit.run_one(HANDLER, ImportLedger(ledger_id=7)).outcome.verdict == "succeeded"

async def test_the_handler_on_the_tests_own_loop(oomph_kit):
    await oomph_kit.run_one_async(HANDLER, ImportLedger(ledger_id=7))
"""

from supervisor.testing.kit import Kit
from supervisor.testing.processes import WorkerProcess, is_alive, running_worker
from supervisor.testing.waiting import wait_for

__all__ = ["Kit", "WorkerProcess", "is_alive", "running_worker", "wait_for"]

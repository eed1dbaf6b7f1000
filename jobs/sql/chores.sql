-- See background_chores in jobs/migrations.
SELECT * FROM background_chores(%(worker_id)s::uuid)

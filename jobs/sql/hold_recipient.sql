-- Of the workers that look at the same moment, one dispatches. Its own statement: the next one's snapshot is from after
-- this lock, and sees what the worker before has dispatched.
SELECT pg_try_advisory_xact_lock(hashtext('oomph notices ' || %(channel)s), hashtext(%(recipient)s))

INSERT INTO background_workers (id, host, pid, version, pools, kinds, lease_until)
VALUES (%(worker_id)s, %(host)s, %(pid)s, %(version)s, %(pools)s, %(kinds)s,
        clock_timestamp() + %(lease)s::interval)

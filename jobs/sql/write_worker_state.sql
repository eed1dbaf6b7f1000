-- How a worker is. One that is known no more says nothing.
INSERT INTO background_worker_states (worker_id, at, memory_mb, children, children_mb, largest_child_mb, template_up, slots)
SELECT w.id, clock_timestamp(), %(memory_mb)s::real, %(children)s::integer, %(children_mb)s::real,
       %(largest_child_mb)s::real, %(template_up)s::boolean, %(slots)s::jsonb
  FROM background_workers AS w WHERE w.id = %(worker_id)s::uuid
ON CONFLICT (worker_id) DO UPDATE
   SET at = excluded.at, memory_mb = excluded.memory_mb, children = excluded.children, children_mb = excluded.children_mb,
       largest_child_mb = excluded.largest_child_mb, template_up = excluded.template_up, slots = excluded.slots

-- The newest migration that was applied, and the oldest schema whose release can work with it; the table is there. That of
-- the first release does not have the column.
SELECT coalesce(max(version), 0), coalesce(max((to_jsonb(m) ->> 'needs')::integer), 0) FROM background_migrations AS m

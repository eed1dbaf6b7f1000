-- The newest migration that was applied; the table is there.
SELECT coalesce(max(version), 0) FROM background_migrations

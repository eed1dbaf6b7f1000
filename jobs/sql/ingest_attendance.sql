-- Alive by the clock of the database, as everywhere.
SELECT (SELECT count(*) FROM background_workers
         WHERE lost_at IS NULL AND lease_until > clock_timestamp()
           AND CAST(%(kind)s AS text) = ANY (kinds) AND CAST(%(pool)s AS text) = ANY (pools)),
       (SELECT coalesce(pause_reason, 'no reason was given') FROM background_kinds
         WHERE kind = CAST(%(kind)s AS text) AND paused_at IS NOT NULL)

-- Marks as read: these, or all. Answers which of them were unread, and which exist.
WITH found AS MATERIALIZED (
    SELECT id, read_at IS NULL AS unread FROM background_notices
     WHERE CASE WHEN CAST(%(ids)s AS bigint[]) IS NULL THEN read_at IS NULL ELSE id = ANY (CAST(%(ids)s AS bigint[])) END
     ORDER BY id FOR UPDATE
), changed AS (
    UPDATE background_notices AS notice SET read_at = clock_timestamp() FROM found
     WHERE notice.id = found.id AND found.unread
)
SELECT id, unread FROM found ORDER BY id

-- The process that serves this session now. A direct connection was greeted with the same number; behind a pooler it was
-- not, or it changes.
SELECT pg_backend_pid()

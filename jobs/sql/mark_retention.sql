-- How far the walk has come; a lap that begins anew from the very first id says so.
UPDATE background_retention
   SET position = %(position)s::bigint, lowest = %(lowest)s::bigint, start = %(start)s::bigint,
       removed = removed + %(removed)s::bigint,
       whole_at = CASE WHEN %(whole)s THEN clock_timestamp() ELSE whole_at END

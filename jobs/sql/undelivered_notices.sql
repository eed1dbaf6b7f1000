-- Of these recipients, those who are to be told of something now; see background_due_notices in jobs/migrations.
SELECT given.channel, given.recipient
  FROM unnest(%(channels)s::text[], %(recipients)s::text[]) AS given (channel, recipient)
 WHERE EXISTS (SELECT FROM background_due_notices(given.channel, given.recipient, %(digest)s::interval, %(newest)s::bigint))

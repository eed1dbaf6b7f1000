-- Notices reach the owners: one row for each event however many workers see it, and one mail of it for each owner.

-- What happened, once: whoever sees it as well writes nothing. A release before this one names no event.
ALTER TABLE background_notices
    DROP COLUMN email,
    ADD COLUMN event text NOT NULL DEFAULT gen_random_uuid()::text CONSTRAINT background_notices_event UNIQUE;
CREATE INDEX background_notices_newest ON background_notices (at);
CREATE INDEX background_notices_unread ON background_notices (id) WHERE read_at IS NULL;

-- Which job brings a notice to whom; a job may bring many. `recipient` is an owner's address, or `webhook`. A job that is
-- gone, or that was buried because no worker knew its kind, is replaced by another.
CREATE TABLE background_notice_deliveries (
    notice_id  bigint NOT NULL REFERENCES background_notices ON DELETE CASCADE,
    job_id     bigint NOT NULL,
    sent_at    timestamptz,
    channel    text NOT NULL CHECK (channel IN ('mail', 'webhook')),
    recipient  text NOT NULL CHECK (length(recipient) BETWEEN 1 AND 320),
    PRIMARY KEY (notice_id, channel, recipient)
);
CREATE INDEX background_notice_deliveries_job ON background_notice_deliveries (job_id);

-- The last message to each.
CREATE TABLE background_notice_recipients (
    channel       text NOT NULL,
    recipient     text NOT NULL,
    job_id        bigint NOT NULL,
    dispatched_at timestamptz NOT NULL,
    PRIMARY KEY (channel, recipient)
);

-- The notices that one recipient is to be told of now, in one message. None for the time of `digest` after the message
-- before, nor while that one is on its way: what comes meanwhile is counted up in the next. What is older than a day is
-- no news, to an owner who was named today or to a mail server that was away for long. With `newest`, only so many of the
-- last are looked at: a day may have a hundred thousand, and it is asked every second.
CREATE FUNCTION background_due_notices(
    of_channel text, of_recipient text, digest interval, newest bigint DEFAULT 1000000000000
) RETURNS SETOF bigint LANGUAGE sql STABLE SET search_path FROM CURRENT
  -- By its indexes whatever the statistics say, which of new tables are nothing: otherwise every delivery would be read.
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
    SELECT notice.id FROM background_notices AS notice
     WHERE notice.at > statement_timestamp() - interval '1 day'
       AND notice.id > (SELECT max(id) FROM background_notices) - newest
       -- Not as a join, for which there is more than one way.
       AND coalesce((SELECT delivery.sent_at IS NULL
                            AND NOT EXISTS (SELECT FROM background_jobs AS job
                                             WHERE job.id = delivery.job_id
                                               AND NOT (job.status = 'dead' AND job.error ->> 'type' = 'UnknownKind'))
                       FROM background_notice_deliveries AS delivery
                      WHERE delivery.notice_id = notice.id AND delivery.channel = of_channel
                        AND delivery.recipient = of_recipient), true)
       AND NOT EXISTS (SELECT FROM background_notice_recipients AS before
                        WHERE before.channel = of_channel AND before.recipient = of_recipient
                          AND (before.dispatched_at > statement_timestamp() - digest
                               OR EXISTS (SELECT FROM background_jobs AS job
                                           WHERE job.id = before.job_id AND job.status IN ('queued', 'running'))))
     ORDER BY notice.id LIMIT 10000
$$;

-- A kind's `Task(important=True)`: its dead jobs are told of.
ALTER TABLE background_kinds ADD COLUMN important boolean NOT NULL DEFAULT false;

-- A job dies in many places: by its handler's error, with its process, with its worker, because nobody knows its kind, by
-- hand. This one sees them all, in the transaction that ends the job.
CREATE FUNCTION background_notice_of_death() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO background_notices (event, severity, subject, body)
    SELECT format('dead-job:%s:%s', NEW.id, date_part('epoch', NEW.finished_at)), 'critical',
           format('job %s of the important kind %s is dead', NEW.id, NEW.kind),
           concat_ws(E'\n',
               format('Attempts: %s of %s.', NEW.attempt, NEW.max_attempts),
               left(concat_ws(': ', NEW.error ->> 'type', NEW.error ->> 'message'), 5000),
               format('`oomph jobs show %s` tells more; `oomph jobs retry %s` gives it its attempts anew.', NEW.id, NEW.id))
      FROM background_kinds AS k WHERE k.kind = NEW.kind AND k.important
    ON CONFLICT (event) DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER background_notice_of_death AFTER UPDATE OF status ON background_jobs FOR EACH ROW
    WHEN (NEW.status = 'dead' AND OLD.status <> 'dead')
    EXECUTE FUNCTION background_notice_of_death();

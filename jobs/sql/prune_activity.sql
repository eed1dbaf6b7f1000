-- What is older than it is kept. Bounded, and past what another worker prunes at this moment.
DELETE FROM background_activity
 WHERE ctid = ANY (ARRAY(SELECT old.ctid FROM background_activity AS old
                          WHERE old.seconds = %(seconds)s::integer
                            AND old.at < statement_timestamp() - %(kept)s::interval
                          ORDER BY old.at LIMIT %(limit)s::integer FOR UPDATE SKIP LOCKED))

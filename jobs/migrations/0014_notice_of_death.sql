-- As before, but the command that it names runs as it stands: a retry needs an actor, and was refused without.
CREATE OR REPLACE FUNCTION background_notice_of_death() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO background_notices (event, severity, subject, body)
    SELECT format('dead-job:%s:%s', NEW.id, date_part('epoch', NEW.finished_at)), 'critical',
           format('job %s of the important kind %s is dead', NEW.id, NEW.kind),
           concat_ws(E'\n',
               format('Attempts: %s of %s.', NEW.attempt, NEW.max_attempts),
               left(concat_ws(': ', NEW.error ->> 'type', NEW.error ->> 'message'), 5000),
               format('`oomph jobs show %s` tells more; `oomph jobs retry %s --actor NAME` gives it its attempts anew.',
                      NEW.id, NEW.id))
      FROM background_kinds AS k WHERE k.kind = NEW.kind AND k.important
    ON CONFLICT (event) DO NOTHING;
    RETURN NULL;
END $$;

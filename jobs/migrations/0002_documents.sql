-- Documents and the text found in them: what the kind `ingest-document` reads and writes.

CREATE TABLE background_documents (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ready_at   timestamptz,
    size       bigint NOT NULL CHECK (size >= 0),            -- bytes of the original
    job_id     bigint REFERENCES background_jobs ON DELETE SET NULL,
    pages      integer,                                      -- only where the format has pages
    chunks     integer,
    status     text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PARSING', 'READY', 'FAILED')),
    filename   text NOT NULL CHECK (filename <> '' AND length(filename) <= 255),
    sha256     text NOT NULL CONSTRAINT background_documents_sha256 UNIQUE CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    mime_type  text,                                         -- as recognised when it was parsed
    title      text,
    message    text                                          -- for people: why it failed, or why it is tried again
) WITH (fillfactor = 80); -- status is not indexed, so a change of it stays on its page
CREATE UNIQUE INDEX background_documents_job ON background_documents (job_id);

-- What a search compares. How PostgreSQL's parser sees a character that is not ASCII depends on the database's locale
-- (in locale C every one of them is a letter), so whatever must not be left to it is settled here:
-- compatibility forms (ligatures of PDFs, presentation forms of Arabic) become the letters they stand for; Arabic vowel
-- signs and the soft hyphen go, as they are optional; scripts without spaces between words (Han, Kana, Thai, Lao,
-- Burmese, Khmer) become one word a character, which a quoted query then finds as a phrase. The separator is a control
-- character that no stored text holds, so that what was separated for display can be put together again.
CREATE FUNCTION background_separated_text(given text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN regexp_replace(
    regexp_replace(normalize(given, NFKC), '[\u00ad\u0640\u064b-\u065f\u0670]', '', 'g'),
    '([\u00a1\u00ab\u00b7\u00bb\u00bf\u060c\u061b\u061f\u06d4\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2000-\u206f'
        '\u2190-\u2bff\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff])',
    chr(31) || '\1' || chr(31), 'g');
-- The same without punctuation that is not ASCII.
CREATE FUNCTION background_search_text(given text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN regexp_replace(
    background_separated_text(given),
    '[\u00a1\u00ab\u00b7\u00bb\u00bf\u060c\u061b\u061f\u06d4\u2000-\u206f\u2190-\u2bff\u3000-\u3004\u3008-\u3020]',
    ' ', 'g');

-- The position is the chunk's stable name: a document that is parsed again writes the same rows.
CREATE TABLE background_document_chunks (
    document_id uuid NOT NULL REFERENCES background_documents ON DELETE CASCADE,
    position    integer NOT NULL CHECK (position >= 0),
    page        integer,
    heading     text,
    text        text NOT NULL,
    -- Twice, because no language is known: `english` finds "documents" for "document", `simple` keeps every word of any
    -- language as it stands, also those that English would drop ("a", "in", "die"). A query is asked in both as well.
    search      tsvector NOT NULL GENERATED ALWAYS AS (
                    setweight(to_tsvector('english', background_search_text(coalesce(heading, ''))), 'A')
                    || setweight(to_tsvector('simple', background_search_text(coalesce(heading, ''))), 'A')
                    || to_tsvector('english', background_search_text(text))
                    || to_tsvector('simple', background_search_text(text))) STORED,
    PRIMARY KEY (document_id, position)
);
CREATE INDEX background_document_chunks_search ON background_document_chunks USING gin (search);

-- What a person is told of an error that ended an attempt.
CREATE FUNCTION background_document_message(error jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT left(CASE
        WHEN error IS NULL THEN 'The job ended without saying why.'
        WHEN error ->> 'type' LIKE '%UnreadableDocument' THEN error ->> 'message'
        WHEN error ->> 'type' ~ '(MemoryExceeded|MemoryError|OomKilled)$'
            THEN 'The document needs more memory than a job may use: ' || coalesce(error ->> 'message', '')
        WHEN error ->> 'type' = 'TimedOut'
            THEN 'Reading the document took too long: ' || coalesce(error ->> 'message', '')
        WHEN error ->> 'type' = 'Cancelled' THEN 'The job was ' || coalesce(error ->> 'message', 'cancelled') || '.'
        ELSE 'Reading the document failed: ' || coalesce(error ->> 'message', error ->> 'type', '')
    END, 2000)
$$;

-- A document's status is a function of its job's, so this trigger is the one place that changes it, in the transaction
-- that changes the job: the two can never disagree. A child that is killed, a worker that vanishes, an operator's
-- cancel or retry and an UPDATE by hand all pass here; code in the handler could not even see most of them. A view over
-- both tables would be as true, but would forget with a job that retention deletes, and every search would need it.
CREATE FUNCTION background_document_follows_job() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE background_documents
       SET status = CASE NEW.status WHEN 'queued' THEN 'PENDING' WHEN 'running' THEN 'PARSING'
                                    WHEN 'succeeded' THEN 'READY' ELSE 'FAILED' END,
           message = CASE WHEN NEW.status IN ('dead', 'cancelled') THEN background_document_message(NEW.error)
                          WHEN NEW.status = 'queued' AND NEW.attempt > 0 AND NEW.error IS NOT NULL
                          THEN format('Attempt %s of %s failed, it will be tried again. %s', NEW.attempt,
                                      NEW.max_attempts, background_document_message(NEW.error)) END,
           ready_at = CASE WHEN NEW.status = 'succeeded' THEN clock_timestamp() END
     WHERE job_id = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER background_document_follows_job AFTER UPDATE OF status ON background_jobs FOR EACH ROW
    WHEN (NEW.kind = 'ingest-document' AND OLD.status IS DISTINCT FROM NEW.status)
    EXECUTE FUNCTION background_document_follows_job();

CREATE FUNCTION background_document_loses_job() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE background_documents SET status = 'FAILED', message = 'Its job was deleted before it ended.'
     WHERE job_id = OLD.id;
    RETURN OLD;
END $$;
CREATE TRIGGER background_document_loses_job BEFORE DELETE ON background_jobs FOR EACH ROW
    WHEN (OLD.kind = 'ingest-document' AND OLD.status IN ('queued', 'running'))
    EXECUTE FUNCTION background_document_loses_job();

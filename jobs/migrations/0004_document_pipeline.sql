-- Documents in collections, through the stages of their pipeline, with what each run leaves in the object store.

ALTER TABLE background_documents
    ADD COLUMN collection text NOT NULL DEFAULT 'default' CHECK (collection <> '' AND length(collection) <= 100),
    ADD COLUMN deleted_at timestamptz,  -- from here on only its objects are waited for
    ADD COLUMN edition    text,         -- `job-claim`: the attempt whose snapshot and assets are the document's
    ADD COLUMN parser     text,
    ADD COLUMN assets     integer,
    ADD COLUMN is_watched boolean NOT NULL DEFAULT false, -- a watched folder made it, and may delete it
    DROP CONSTRAINT background_documents_sha256,
    DROP CONSTRAINT background_documents_status_check,
    ADD CONSTRAINT background_documents_status_check
        CHECK (status IN ('PENDING', 'PARSING', 'CHUNKING', 'EMBEDDING', 'INDEXING', 'READY', 'FAILED'));
-- The same content is one document of a collection.
CREATE UNIQUE INDEX background_documents_content ON background_documents (collection, sha256) WHERE deleted_at IS NULL;
CREATE INDEX background_documents_newest ON background_documents (created_at, id) WHERE deleted_at IS NULL;

-- The images found in a document. Their content lies in the object store, under the document's edition and this key,
-- which is the same whenever the same document is parsed.
CREATE TABLE background_document_assets (
    document_id uuid NOT NULL REFERENCES background_documents ON DELETE CASCADE,
    key         text NOT NULL,
    page        integer,
    mime_type   text NOT NULL,
    size        bigint NOT NULL CHECK (size >= 0),
    PRIMARY KEY (document_id, key)
);

-- What a watched folder held when it was looked at last. A name on a disk may hold any bytes.
CREATE TABLE background_document_files (
    folder      bytea NOT NULL,
    path        bytea NOT NULL,         -- below the folder
    size        bigint NOT NULL,
    mtime_ns    bigint NOT NULL,
    document_id uuid REFERENCES background_documents ON DELETE SET NULL,
    replaces    uuid REFERENCES background_documents ON DELETE SET NULL, -- serves until document_id is READY
    refused     text,                   -- why it is no document
    PRIMARY KEY (folder, path)
);
CREATE INDEX background_document_files_document ON background_document_files (document_id);
CREATE INDEX background_document_files_replaces ON background_document_files (replaces) WHERE replaces IS NOT NULL;

-- What a person is told of an error that ended an attempt in this stage.
DROP FUNCTION background_document_message(jsonb);
CREATE FUNCTION background_document_message(error jsonb, stage text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT left(CASE
        WHEN error IS NULL THEN 'The job ended without saying why.'
        WHEN error ->> 'type' LIKE '%UnreadableDocument' THEN error ->> 'message'
        WHEN error ->> 'type' ~ '(MemoryExceeded|MemoryError|OomKilled)$'
            THEN 'The document needs more memory than a job may use: ' || coalesce(error ->> 'message', '')
        WHEN error ->> 'type' = 'Cancelled' THEN 'The job was ' || coalesce(error ->> 'message', 'cancelled') || '.'
        ELSE CASE stage WHEN 'CHUNKING' THEN 'Chunking' WHEN 'EMBEDDING' THEN 'Embedding' WHEN 'INDEXING' THEN 'Indexing'
                        ELSE 'Reading' END
             || CASE WHEN error ->> 'type' = 'TimedOut' THEN ' the document took too long: '
                     ELSE ' the document failed: ' END
             || coalesce(error ->> 'message', error ->> 'type', '')
    END, 2000)
$$;

-- Has the objects that an attempt left behind removed; at most one such job of a document waits.
CREATE FUNCTION background_clean_up_document(document_id uuid) RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$
    INSERT INTO background_jobs (kind, pool, priority, max_attempts, payload, dedupe_key)
    VALUES ('clean-up-document', 'system', 2, 10, jsonb_build_object('document_id', document_id), document_id::text)
    ON CONFLICT DO NOTHING
$$;

-- A document's status is a function of its job's and, while that runs, of the stage it is in. This trigger settles it in
-- the transaction that changes the job, so that the two can never disagree: a child that is killed, a worker that
-- vanishes, an operator's cancel or retry and an UPDATE by hand all pass here. Only the stages are written elsewhere
-- (advance_document.sql), behind the job's fence. `ready_at` says that an index of the document serves, perhaps that of
-- an earlier run: such a document is READY again, and says so, when its job comes to nothing.
--
-- Every attempt that ends without success passes here too, also of killed children and lost workers, which clean up
-- nothing themselves; so this is where their clean-up is asked for.
CREATE OR REPLACE FUNCTION background_document_follows_job() RETURNS trigger LANGUAGE plpgsql
  SET search_path FROM CURRENT AS $$
DECLARE
    document_id uuid;
BEGIN
    UPDATE background_documents AS document
       SET status = CASE WHEN NEW.status = 'queued' THEN 'PENDING'
                         WHEN NEW.status = 'running' AND NEW.payload ->> 'source' = 'snapshot' THEN 'EMBEDDING'
                         WHEN NEW.status = 'running' THEN 'PARSING'
                         WHEN NEW.status = 'succeeded' OR document.ready_at IS NOT NULL THEN 'READY'
                         ELSE 'FAILED' END,
           message = CASE WHEN NEW.status IN ('dead', 'cancelled')
                          THEN background_document_message(NEW.error, document.status)
                               || CASE WHEN document.ready_at IS NOT NULL THEN ' Its earlier index still serves.'
                                       ELSE '' END
                          WHEN NEW.status = 'queued' AND NEW.attempt > 0 AND NEW.error IS NOT NULL
                          THEN format('Attempt %s of %s failed, will be retried. %s', NEW.attempt, NEW.max_attempts,
                                      background_document_message(NEW.error, document.status)) END,
           ready_at = CASE WHEN NEW.status = 'succeeded' THEN clock_timestamp() ELSE document.ready_at END
     WHERE document.job_id = NEW.id AND document.deleted_at IS NULL
    RETURNING document.id INTO document_id;
    IF document_id IS NOT NULL AND OLD.status = 'running' AND NEW.status <> 'succeeded' THEN
        PERFORM background_clean_up_document(document_id);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION background_document_loses_job() RETURNS trigger LANGUAGE plpgsql
  SET search_path FROM CURRENT AS $$
DECLARE
    document_id uuid;
BEGIN
    UPDATE background_documents AS document
       SET status = CASE WHEN document.ready_at IS NOT NULL THEN 'READY' ELSE 'FAILED' END,
           message = 'Its job was deleted before it ended.'
                     || CASE WHEN document.ready_at IS NOT NULL THEN ' Its earlier index still serves.' ELSE '' END
     WHERE document.job_id = OLD.id AND document.deleted_at IS NULL
    RETURNING document.id INTO document_id;
    IF document_id IS NOT NULL AND OLD.status = 'running' THEN
        PERFORM background_clean_up_document(document_id);
    END IF;
    RETURN OLD;
END $$;

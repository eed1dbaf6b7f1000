-- Chunks get names of their own, and vectors beside them where the server has pgvector. Nothing here needs the extension:
-- what does is made at the first document that has vectors, so it may be installed at any later time.

ALTER TABLE background_document_chunks
    ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid(),
    DROP CONSTRAINT background_document_chunks_pkey;
ALTER TABLE background_document_chunks
    ADD PRIMARY KEY (id),
    ADD CONSTRAINT background_document_chunks_position UNIQUE (document_id, position);

-- Vectors of two models cannot be compared, and an HNSW index holds vectors of one length. So each model has a table,
-- background_vectors_<id>: its index is a plain one that the planner always sees, a change of models never locks or
-- rebuilds what serves, and the index of a model that nobody uses any more goes with its table.
CREATE TABLE background_vector_models (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dimensions integer NOT NULL CHECK (dimensions BETWEEN 1 AND 4000), -- an HNSW index holds no more
    model      text NOT NULL CHECK (model <> ''),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT background_vector_models_name UNIQUE (model, dimensions)
);

-- Why this server stores no vectors, in a sentence; NULL where it does. Makes the extension where that takes no more than
-- saying so.
CREATE FUNCTION background_refuses_vectors() RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    installed text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector') THEN
        IF NOT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector') THEN
            RETURN 'The extension pgvector is not installed on the database server.';
        END IF;
        PERFORM pg_advisory_xact_lock(hashtextextended('background_vectors', 0));
        BEGIN
            CREATE EXTENSION IF NOT EXISTS vector;
        EXCEPTION WHEN insufficient_privilege THEN
            RETURN 'The extension pgvector is not in the database, and this role may not create it: '
                   'have CREATE EXTENSION vector run by one who may.';
        END;
    END IF;
    SELECT extversion INTO STRICT installed FROM pg_extension WHERE extname = 'vector';
    -- Before 0.8 a filter leaves fewer rows than were asked for, or none.
    IF string_to_array(substring(installed FROM '^\d+\.\d+'), '.')::integer[] < '{0,8}' THEN
        RETURN format('The extension pgvector is %s, vectors need 0.8 or newer: ALTER EXTENSION vector UPDATE.',
                      installed);
    END IF;
    RETURN NULL;
END $$;

-- The table of a model's vectors; NULL where there is none, or where the extension went away and took the vectors.
CREATE FUNCTION background_vector_table(given_model text, given_dimensions integer) RETURNS regclass
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    found regclass;
BEGIN
    SELECT to_regclass('background_vectors_' || id) INTO found FROM background_vector_models
     WHERE model = given_model AND dimensions = given_dimensions;
    IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = found AND attname = 'embedding' AND NOT attisdropped) THEN
        RETURN found;
    END IF;
    RETURN NULL;
END $$;

-- Makes that table where it is missing, and says its name. To be called before the transaction touches a chunk: the
-- foreign key locks their table against writers, and whoever waits for that lock must not hold a row that they want.
CREATE FUNCTION background_make_vector_table(given_model text, given_dimensions integer) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    made text;
    extension text;
    -- Half the precision, which is more than a search can tell, is what an index takes of vectors as long as these.
    type text := CASE WHEN given_dimensions <= 2000 THEN 'vector' ELSE 'halfvec' END;
BEGIN
    made := background_vector_table(given_model, given_dimensions);
    IF made IS NOT NULL THEN
        BEGIN
            EXECUTE format('LOCK TABLE %s IN ROW EXCLUSIVE MODE', made);
            RETURN made;
        EXCEPTION WHEN undefined_table THEN
            NULL; -- forgotten since it was looked up
        END;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('background_vectors', 0));
    INSERT INTO background_vector_models (model, dimensions) VALUES (given_model, given_dimensions)
        ON CONFLICT DO NOTHING;
    SELECT 'background_vectors_' || id INTO STRICT made FROM background_vector_models
     WHERE model = given_model AND dimensions = given_dimensions;
    IF background_vector_table(given_model, given_dimensions) IS NOT NULL THEN
        RETURN made; -- perhaps by another, while this one waited
    END IF;
    SELECT nspname INTO STRICT extension FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace
     WHERE extname = 'vector';
    EXECUTE format('DROP TABLE IF EXISTS %I', made);
    EXECUTE format(
        'CREATE TABLE %I (
             chunk_id    uuid PRIMARY KEY REFERENCES background_document_chunks ON DELETE CASCADE,
             document_id uuid NOT NULL,  -- the chunk''s own: a search filters by it
             embedding   %I.%I(%s) NOT NULL)', made, extension, type, given_dimensions);
    EXECUTE format('CREATE INDEX %I ON %I (document_id)', made || '_document', made);
    EXECUTE format('CREATE INDEX %I ON %I USING hnsw (embedding %I.%I)', made || '_embedding', made,
                   extension, type || '_cosine_ops');
    RETURN made;
END $$;

-- Drops the tables of models that no chunk has a vector of, and names the models: once another one is used, the index of
-- the one before would keep its size for ever. What is in use at the moment is passed over, until the next time.
CREATE FUNCTION background_forget_models() RETURNS SETOF text LANGUAGE plpgsql
  SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
    given record;
    vectors text;
    is_used boolean;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('background_vectors', 0)) THEN
        RETURN;
    END IF;
    FOR given IN SELECT id, model FROM background_vector_models LOOP
        vectors := 'background_vectors_' || given.id;
        BEGIN
            IF to_regclass(vectors) IS NOT NULL THEN
                EXECUTE format('SELECT EXISTS (SELECT FROM %I)', vectors) INTO is_used;
                CONTINUE WHEN is_used;
                -- Dropping a foreign key locks both tables. Who writes locks its vectors first, so these are not waited
                -- for while the chunks are held.
                LOCK TABLE background_document_chunks IN ACCESS EXCLUSIVE MODE;
                EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE NOWAIT', vectors);
                EXECUTE format('SELECT EXISTS (SELECT FROM %I)', vectors) INTO is_used;
                CONTINUE WHEN is_used;
                EXECUTE format('DROP TABLE %I', vectors);
            END IF;
            DELETE FROM background_vector_models WHERE id = given.id;
            RETURN NEXT given.model;
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
    END LOOP;
END $$;

-- The chunks whose vectors of this model are nearest, in documents whose index is complete; none where the model has no
-- vectors. In a function because the table's name and type are known only here, and so is the value for the planner.
CREATE FUNCTION background_nearest_chunks(
    given_model text, given_dimensions integer, given_vector text, given_collection text, at_most integer
) RETURNS TABLE (chunk_id uuid, distance double precision)
LANGUAGE plpgsql STABLE ROWS 100 SET search_path FROM CURRENT AS $$
DECLARE
    vectors regclass := background_vector_table(given_model, given_dimensions);
    operator text;
    type text;
    ef_search text := current_setting('hnsw.ef_search', true);
    iterative_scan text := current_setting('hnsw.iterative_scan', true);
BEGIN
    IF vectors IS NULL THEN
        RETURN;
    END IF;
    SELECT format('OPERATOR(%I.<=>)', nspname), format_type(atttypid, atttypmod) INTO STRICT operator, type
      FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid JOIN pg_namespace ON pg_namespace.oid = typnamespace
     WHERE attrelid = vectors AND attname = 'embedding';
    -- For this query only. Without iterative scans a filter would be asked of the nearest 40, and leave none of them
    -- where they lie in other collections.
    PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
            set_config('hnsw.ef_search', least(greatest(at_most, 40), 1000)::text, true);
    RETURN QUERY EXECUTE format(
        'SELECT vector.chunk_id, vector.embedding %2$s $1::%3$s
           FROM %1$s AS vector
           JOIN background_documents AS document ON document.id = vector.document_id
          WHERE document.ready_at IS NOT NULL %4$s
          ORDER BY vector.embedding %2$s $1::%3$s
          LIMIT $3',
        vectors, operator, type, CASE WHEN given_collection IS NOT NULL THEN 'AND document.collection = $2' END)
        USING given_vector, given_collection, at_most;
    PERFORM set_config('hnsw.iterative_scan', iterative_scan, true), set_config('hnsw.ef_search', ef_search, true);
END $$;

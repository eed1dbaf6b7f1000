-- Only documents whose index is complete are found: `ready_at` says since when. The query is asked as the index was made:
-- in English, and in no language. Where a vector is given, the chunks nearest to it are a second list, and reciprocal
-- rank fusion (Cormack, Clarke and Büttcher 2009, k = 60) makes one of both: places can be added up where ranks and
-- distances cannot. Snippets are cut for the best rows only, since each parses its text again.
WITH asked AS (
    SELECT CASE WHEN regexp_replace(CAST(english AS text), '[^!]', '', 'g')
                     = regexp_replace(CAST(simple AS text), '[^!]', '', 'g') THEN english || simple
                ELSE simple END AS query -- English drops words like "the", also one that must not occur
      FROM (SELECT websearch_to_tsquery('english', words) AS english, websearch_to_tsquery('simple', words) AS simple
              FROM (SELECT background_search_text(CAST(%(words)s AS text)) AS words) AS given) AS both_ways
), worded AS MATERIALIZED (
    SELECT chunk.id, document.filename, chunk.document_id, chunk.position,
           -- 1: a long chunk is not better for being long. Of a query as long as a page it would take a second a row.
           CASE WHEN numnode(asked.query) <= 256 THEN ts_rank_cd(chunk.search, asked.query, 1) ELSE 0 END AS rank
      FROM asked
      JOIN background_document_chunks AS chunk ON chunk.search @@ asked.query
      JOIN background_documents AS document ON document.id = chunk.document_id
     WHERE document.ready_at IS NOT NULL
       AND (CAST(%(collection)s AS text) IS NULL OR document.collection = CAST(%(collection)s AS text))
     ORDER BY rank DESC, document.filename, chunk.document_id, chunk.position
     LIMIT CAST(%(candidates)s AS integer)
), nearest AS MATERIALIZED (
    SELECT chunk_id AS id, distance
      FROM background_nearest_chunks(CAST(%(model)s AS text), CAST(%(dimensions)s AS integer),
               CAST(%(vector)s AS text), CAST(%(collection)s AS text), CAST(%(candidates)s AS integer))
), listed AS (
    SELECT id, row_number() OVER (ORDER BY rank DESC, filename, document_id, position) AS place, 'words' AS list
      FROM worded
     UNION ALL
    SELECT id, row_number() OVER (ORDER BY distance, id), 'meaning' FROM nearest
), best AS MATERIALIZED (
    SELECT document.id, document.filename, document.title, chunk.position, chunk.page, chunk.heading, chunk.text,
           fused.rank, fused.lists
      FROM (SELECT listed.id, CAST(sum(1.0 / (60 + place)) AS double precision) AS rank,
                   string_agg(list, ',' ORDER BY list DESC) AS lists
              FROM listed GROUP BY listed.id) AS fused
      JOIN background_document_chunks AS chunk ON chunk.id = fused.id
      JOIN background_documents AS document ON document.id = chunk.document_id
     ORDER BY fused.rank DESC, document.filename, document.id, chunk.position
     LIMIT CAST(%(limit)s AS integer)
)
SELECT best.id, best.filename, best.title, best.position, best.page, best.heading, best.rank,
       ts_headline('english', background_separated_text(best.text), asked.query,
                   'StartSel=' || chr(2) || ', StopSel=' || chr(3) || CASE WHEN length(best.text) <= 300
                        THEN ', HighlightAll=true'
                        ELSE ', MaxFragments=2, MaxWords=30, MinWords=15, FragmentDelimiter=" … "' END),
       best.lists
  FROM best, asked
 ORDER BY best.rank DESC, best.filename, best.id, best.position

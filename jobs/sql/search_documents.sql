-- Only READY documents are found. The query is asked as the index was made: in English, and in no language. Snippets are
-- cut for the best rows only, since each parses its text again.
WITH asked AS (
    SELECT websearch_to_tsquery('english', background_search_text(CAST(%(words)s AS text)))
           || websearch_to_tsquery('simple', background_search_text(CAST(%(words)s AS text))) AS query
), best AS MATERIALIZED (
    SELECT document.id, document.filename, document.title, chunk.position, chunk.page, chunk.heading, chunk.text,
           CAST(ts_rank_cd(chunk.search, asked.query, 1) AS double precision) AS rank -- 1: a long chunk is not better for being long
      FROM asked
      JOIN background_document_chunks AS chunk ON chunk.search @@ asked.query
      JOIN background_documents AS document ON document.id = chunk.document_id AND document.status = 'READY'
     ORDER BY rank DESC, document.filename, document.id, chunk.position
     LIMIT CAST(%(limit)s AS integer)
)
SELECT best.id, best.filename, best.title, best.position, best.page, best.heading, best.rank,
       ts_headline('english', background_separated_text(best.text), asked.query,
                   'StartSel=' || chr(2) || ', StopSel=' || chr(3) || CASE WHEN length(best.text) <= 300
                        THEN ', HighlightAll=true'
                        ELSE ', MaxFragments=2, MaxWords=30, MinWords=15, FragmentDelimiter=" … "' END)
  FROM best, asked
 ORDER BY best.rank DESC, best.filename, best.id, best.position

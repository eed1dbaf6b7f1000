INSERT INTO background_document_assets (document_id, key, page, mime_type, size)
SELECT %(document_id)s, asset.*
  FROM unnest(%(keys)s::text[], %(pages)s::integer[], %(mime_types)s::text[], %(sizes)s::bigint[]) AS asset
ON CONFLICT DO NOTHING

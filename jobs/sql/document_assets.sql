SELECT asset.key, asset.page, asset.mime_type, asset.size, document.edition
  FROM background_document_assets AS asset JOIN background_documents AS document ON document.id = asset.document_id
 WHERE document.id = CAST(%(document_id)s AS uuid) AND document.deleted_at IS NULL
 ORDER BY asset.page, asset.key

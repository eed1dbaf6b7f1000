-- With add_assets in one transaction.
DELETE FROM background_document_assets WHERE document_id = %(document_id)s

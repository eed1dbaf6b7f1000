INSERT INTO background_kinds (kind) VALUES (%(kind)s) ON CONFLICT DO NOTHING

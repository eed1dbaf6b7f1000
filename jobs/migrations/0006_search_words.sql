-- More of what PostgreSQL's parser must not be left to decide. It takes `input/output` for the path of a file, `<limit and
-- value>` for a tag, `weaves.The` and `report.pdf` for hosts, and the second year of `1837-1840` for a number below zero:
-- then none of these words is found. A sign that is not ASCII is a letter to it, so the last word before a danda or an
-- emoji had another end than the one that is asked for.

-- Signs within words go: points of Hebrew, vowel signs of Arabic, marks of Armenian, what chooses the look of a sign.
CREATE OR REPLACE FUNCTION background_separated_text(given text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN regexp_replace(regexp_replace(
    regexp_replace(normalize(given, NFKC),
        '[\u00ad\u034f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u055b-\u055e\u061c\u0640\u064b-\u065f\u0670'
        '\u180b-\u180e\u20e3\ufe00-\ufe0f]', '', 'g'),
    -- A dot is part of a number only; a tag, an address and a path are the words in them.
    '([<>/@&\\\u00a1-\u00a9\u00ab\u00ac\u00ae-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7\u0589\u058a\u05be\u05c0'
        '\u05c3\u05c6\u060c\u061b\u061f\u066a\u066d\u06d4\u0700-\u070d\u07f8\u07f9\u0964\u0965\u0e00-\u0eff\u0f0b-\u0f14'
        '\u1000-\u109f\u1360-\u1368\u166d\u166e\u16eb-\u16ed\u1735\u1736\u1780-\u17ff\u1800-\u180a\u1980-\u19ff'
        '\u1a20-\u1aad\u1b00-\u1b7f\u2000-\u206f\u20a0-\u20cf\u2190-\u2bff\u2e00-\u2e7f\u3000-\u312f\u31a0-\u31bf'
        '\u3400-\u4dbf\u4e00-\u9fff\ua4fe\ua4ff\ua980-\ua9ff\uaa60-\uaadf\U0001b000-\U0001b16f\U0001f000-\U0001faff'
        '\U00020000-\U0003ffff]|(?<![0-9])\.|\.(?![0-9]))',
    chr(31) || '\1' || chr(31), 'g'),
    -- Words of a compound, or a phrase that ends in one would miss it. Behind the hyphen only: what stands first in a
    -- query, also before a quote, still says that something must not occur.
    '([-+])(?=[^[:space:]"+-])', '\1' || chr(31), 'g');
CREATE OR REPLACE FUNCTION background_search_text(given text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN regexp_replace(
    background_separated_text(given),
    '[\u00a1\u00ab\u00b7\u00bb\u00bf\u0589\u058a\u05be\u05c0\u05c3\u05c6\u060c\u061b\u061f\u066a\u066d\u06d4\u0700-\u070d'
        '\u07f8\u07f9\u0964\u0965\u0f0b-\u0f14\u1360-\u1368\u166d\u166e\u16eb-\u16ed\u1735\u1736\u1800-\u180a'
        '\u2000-\u206f\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\ua4fe\ua4ff]',
    ' ', 'g');

-- Chunks are searched by the new words from here on. Between the lists of a chunk stands a word that nobody can ask for:
-- without it, the end of one and the beginning of the next are a phrase.
ALTER TABLE background_document_chunks DROP COLUMN search;
ALTER TABLE background_document_chunks ADD COLUMN
    search tsvector NOT NULL GENERATED ALWAYS AS (
        setweight(to_tsvector('english', background_search_text(coalesce(heading, ''))), 'A') || tsvector '''~'':1'
        || setweight(to_tsvector('simple', background_search_text(coalesce(heading, ''))), 'A') || tsvector '''~'':1'
        || to_tsvector('english', background_search_text(text)) || tsvector '''~'':1'
        || to_tsvector('simple', background_search_text(text))) STORED;
CREATE INDEX background_document_chunks_search ON background_document_chunks USING gin (search);

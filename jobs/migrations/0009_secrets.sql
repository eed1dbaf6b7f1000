-- Which fields of a kind's payload are secret, as a worker has published them with its declaration: paths such as
-- card.number or tokens.*. NULL until one has, so that readers hide every field. What was secret once stays so, for the
-- jobs of earlier releases; NULL again, which the next start of a worker fills, forgets them.
ALTER TABLE background_kinds ADD COLUMN secret_paths text[];

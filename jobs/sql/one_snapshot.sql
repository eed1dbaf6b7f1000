-- What the statements of this transaction read is what was committed before the first of them, and they write nothing.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY

"""What a child does with one document, in this order: fetch, parse, chunk, write.

    handler.py     the order, and the transaction in which everything becomes visible
    parse.py       bytes to pages of text          references.py  keeps character references that the parser drops
    headings.py    where sections begin            chunk.py       pages to chunks with page and heading

Only a child and its template import this package: it costs the parser and the object store.
"""

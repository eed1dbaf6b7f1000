"""What a child does with one document, in this order: parse, chunk, embed, index.

    handler.py     the order, and the transaction in which everything becomes visible
    parse.py       a file to pages of text         references.py   keeps character references that the parser drops
    headings.py    where sections begin            chunk.py        pages to chunks with page and heading
    snapshot.py    what goes into embedding, as one file
    embed.py       chunks to vectors               embed_http.py   by an endpoint
    vectors.py     vectors as one file             embed_local.py  by a model on this host's disk
    index.py       where chunks and vectors are found

Only a child and its template import the parser. `embed.py` is also for who searches, and costs only its own library.
"""

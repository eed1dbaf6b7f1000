"""What a child does with one document, in this order: parse, chunk, embed, index.

    handler.py    the order, and the transaction in which everything becomes visible
    attempt.py    what one attempt may write, behind its fence
    parse.py      a file to pages of text and images: the way for each type
      parsed.py     the port                          extract.py      the library that reads most types
      text.py       encodings, text of any size       pdf.py          parts of long ones, images
      archive.py    what ZIP files unpack to, images  references.py   keeps character references that the library drops
      mail.py       mails without plain text
      headings.py   where sections begin
    chunk.py      pages to chunks with page and heading
      cuts.py       where a text is cut               units.py        what its size is counted in
    snapshot.py   what goes into embedding, as one file
    embed.py      chunks to vectors
      embed_http.py by an endpoint                    embed_local.py  by a model on this host's disk
    vectors.py    vectors as one file
    index.py      where chunks and vectors are found

Only a child and its template import the parser. `embed.py` is also for who searches, and costs only its own library.
"""

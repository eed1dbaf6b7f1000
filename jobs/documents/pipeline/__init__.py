"""What a child does with one document, in this order: fetch, parse, chunk, write.

    handler.py    the order, and the transaction in which everything becomes visible
    parse.py      a file to pages of text and images: the way for each type
      parsed.py     the port                          extract.py      the library that reads most types
      text.py       encodings, text of any size       pdf.py          parts of long ones, images
      archive.py    what ZIP files unpack to, images  references.py   keeps character references that the library drops
      headings.py   where sections begin
    chunk.py      pages to chunks with page and heading
      cuts.py       where a text is cut               units.py        what its size is counted in

Only a child and its template import this package: it costs the parser and the object store.
"""

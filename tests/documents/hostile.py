"""Files that nobody means well with, or that went wrong on their way."""

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import IO

from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen.canvas import Canvas

from scripts import samples

SECTIONS = [
    ("Engines", ["The analytical engine weaves algebraic patterns."]),
    ("Looms", ["The Jacquard loom weaves flowers and leaves."]),
]
PLACE = b"The Jacquard"  # where a bomb is put into a Word file
MIB = 1 << 20

Part = Callable[[IO[bytes], bytes], object]  # writes a part of a ZIP file; given what it was


def encrypted_pdf() -> bytes:
    buffer = io.BytesIO()
    canvas = Canvas(buffer, encrypt=StandardEncryption("secret", strength=128))
    canvas.drawString(72, 700, "hidden")
    canvas.save()
    return buffer.getvalue()


def encrypted_office() -> bytes:
    """What Office writes instead of a ZIP file: its directory of streams stands behind 100 KB of content."""
    sector, directory = 512, 200
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(22) + (9).to_bytes(2, "little") + bytes(16)
    header += directory.to_bytes(4, "little")
    entry = "EncryptedPackage".encode("utf-16-le").ljust(128, b"\0")
    return header.ljust(sector * (directory + 1), b"\0") + entry * 4


def as_it_was(part: IO[bytes], old: bytes) -> None:
    part.write(old)


def with_parts(source: bytes, changed: Mapping[str, Part]) -> bytes:
    """A ZIP file like `source`, but with these parts, which may be large."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(source)) as before,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as after,
    ):
        old = {name: before.read(name) for name in before.namelist()}
        for name in [*old, *(name for name in changed if name not in old)]:
            with after.open(name, "w", force_zip64=True) as part:
                changed.get(name, as_it_was)(part, old.get(name, b""))
    return buffer.getvalue()


def stuffed(place: bytes, unit: bytes, megabytes: int) -> Part:
    """A part with `unit` again and again before `place`."""

    def write(part: IO[bytes], old: bytes) -> None:
        start, end = old.split(place, 1)
        part.write(start)
        block = unit * (MIB // len(unit))
        for _ in range(megabytes):
            part.write(block)
        part.write(place + end)

    return write


def docx_bomb(megabytes: int) -> bytes:
    return with_parts(samples.docx(SECTIONS), {"word/document.xml": stuffed(PLACE, b"a", megabytes)})


def xlsx_bomb(megabytes: int) -> bytes:
    row = b'<row><c t="inlineStr"><is><t>aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa</t></is></c></row>'
    return with_parts(
        samples.xlsx({"Sheet": [["Engine", 1837]]}),
        {"xl/worksheets/sheet1.xml": stuffed(b"</sheetData>", row, megabytes)},
    )


def picture_bomb(megabytes: int) -> bytes:
    def write(part: IO[bytes], _: bytes) -> None:
        part.write(b"\x89PNG\r\n\x1a\n")
        for _ in range(megabytes):
            part.write(bytes(MIB))

    return with_parts(samples.docx(SECTIONS), {"word/media/image1.png": write})


def understated(content: bytes) -> bytes:
    """A ZIP file whose directory says of each part that it unpacks to ten bytes."""
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        start = packed.start_dir
    written = bytearray(content)
    while written[start : start + 4] == b"PK\x01\x02":
        written[start + 24 : start + 28] = (10).to_bytes(4, "little")
        lengths = [int.from_bytes(written[start + at : start + at + 2], "little") for at in (28, 30, 32)]
        start += 46 + sum(lengths)
    return bytes(written)


def entity_bomb(root: str) -> bytes:
    """A document type whose entity `&z;` would be three gigabytes."""
    entities = ['<!ENTITY a0 "lollollollollollollollollollol">']
    entities += [f'<!ENTITY a{number} "{f"&a{number - 1};" * 10}">' for number in range(1, 9)]
    return f'<!DOCTYPE {root} [{"".join(entities)}<!ENTITY z "&a8;">]>'.encode()


def docx_entity_bomb() -> bytes:
    def write(part: IO[bytes], old: bytes) -> None:
        declaration, body = old.split(b"?>", 1)
        part.write(declaration + b"?>" + entity_bomb("w:document") + body.replace(PLACE, b"&z; " + PLACE))

    return with_parts(samples.docx(SECTIONS), {"word/document.xml": write})


def pdf_of(objects: list[bytes], text: str = "The engine weaves", *, resources: str = "", drawn: str = "") -> bytes:
    """A PDF of one page with `text`, which draws `drawn` first, and more objects, numbered from 6."""
    stream = f"{drawn} BT /F1 12 Tf 72 700 Td ({text}) Tj ET".encode()
    everything = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> %b >> >>" % resources.encode(),
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        *objects,
    ]
    written = bytearray(b"%PDF-1.4\n")
    table = [b"xref\n0 %d\n0000000000 65535 f \n" % (len(everything) + 1)]
    for number, body in enumerate(everything, 1):
        table.append(b"%010d 00000 n \n" % len(written))
        written += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(written)
    written += b"".join(table)
    return bytes(written + b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(everything) + 1, start))


def pdf_with_image(width: int, height: int, *, color: bytes = b"\x10\x80\xc0") -> bytes:
    """A PDF with one line of text and one image of one color, packed."""
    block = color * width
    packer = zlib.compressobj(9, wbits=-15)
    row = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)  # it packs to the same bytes each time
    sum_of_rows = 1
    for _ in range(height):
        sum_of_rows = zlib.adler32(block, sum_of_rows)
    packed = b"\x78\xda" + row * height + b"\x03\0" + sum_of_rows.to_bytes(4, "big")
    image = (
        b"<< /Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceRGB /BitsPerComponent 8 "
        b"/Filter /FlateDecode /Length %d >>\nstream\n%b\nendstream" % (width, height, len(packed), packed)
    )
    return pdf_of([image], resources="/XObject << /I 6 0 R >>", drawn="q 500 0 0 500 50 50 cm /I Do Q")


def pdf_with_image_packed_twice(side: int) -> bytes:
    """Its inner packing is a bomb: a gigabyte of zeros, of which the image would be the first bytes."""
    inner = zlib.compressobj(9)
    inner_packed = b"".join([*(inner.compress(bytes(MIB)) for _ in range(1024)), inner.flush()])
    packed = zlib.compress(inner_packed, 9)
    image = (
        b"<< /Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceRGB /BitsPerComponent 8 "
        b"/Filter [/FlateDecode /FlateDecode] /Length %d >>\nstream\n%b\nendstream" % (side, side, len(packed), packed)
    )
    return pdf_of([image], resources="/XObject << /I 6 0 R >>", drawn="q 500 0 0 500 50 50 cm /I Do Q")


def pdf_of_objects(count: int) -> bytes:
    return pdf_of([b"<< /A %d >>" % number for number in range(count)])


def deep(filename: str, depth: int) -> bytes:
    """A document of elements inside elements."""
    if filename.endswith(".opml"):
        inner = b'<outline text="w">' * depth + b"</outline>" * depth
        return b'<?xml version="1.0"?><opml version="2.0"><body>' + inner + b"</body></opml>"
    if filename.endswith(".pptx"):
        shapes = b"<p:grpSp>" * depth + b"</p:grpSp>" * depth
        return with_parts(samples.pptx(SECTIONS), {"ppt/slides/slide1.xml": stuffed_once(b"</p:spTree>", shapes)})
    book = samples.epub("Book", SECTIONS)
    with zipfile.ZipFile(io.BytesIO(book)) as packed:
        chapter = next(name for name in packed.namelist() if name.endswith("html"))
    return with_parts(book, {chapter: stuffed_once(b"</body>", b"<div>" * depth + b"words" + b"</div>" * depth)})


def stuffed_once(place: bytes, content: bytes) -> Part:
    return lambda part, old: part.write(old.replace(place, content + place, 1))

"""Sample documents in many formats, made with nothing but the standard library.

`scripts/demo` shows the ingestion with them where only Oomph itself is installed, and the tests read them too. Each
maker returns the bytes of one file, the same at every call.
"""

import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from email.message import EmailMessage
from html import escape
from io import BytesIO

MOMENT = (2025, 1, 1, 0, 0, 0)  # of every member of an archive, so that the same call gives the same bytes
OFFICE = "http://schemas.openxmlformats.org"
TYPES = "application/vnd.openxmlformats-officedocument"

Section = tuple[str, Sequence[str]]  # a heading and the paragraphs below it


def pdf(pages: Sequence[Sequence[str]], *, title: str = "") -> bytes:
    """A PDF with one page for each sequence of lines; the first line of a page is set large, as a heading."""
    count = len(pages)
    first_page = 4
    kids = " ".join(f"{first_page + 2 * number} 0 R" for number in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, lines in enumerate(pages):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {first_page + 2 * number + 1} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        drawn = zlib.compress(_page_content(lines))
        head = f"<< /Length {len(drawn)} /Filter /FlateDecode >>\nstream\n"
        objects.append(head.encode() + drawn + b"\nendstream")
    objects.append(b"<< /Title (" + _pdf_string(title) + b") >>")
    written = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(written))
        written += b"%d 0 obj\n" % number + body + b"\nendobj\n"
    table = len(written)
    written += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for offset in offsets:
        written += b"%010d 00000 n \n" % offset
    written += b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\n" % (len(objects) + 1, len(objects))
    return bytes(written + b"startxref\n%d\n%%%%EOF\n" % table)


def docx(sections: Sequence[Section], *, table: Sequence[Sequence[str]] = ()) -> bytes:
    """A Word document; a heading may be empty. `table` stands at its end."""
    body = "".join(
        (_docx_paragraph(heading, "Heading1") if heading else "") + "".join(map(_docx_paragraph, paragraphs))
        for heading, paragraphs in sections
    )
    if table:
        rows = (
            "<w:tr>" + "".join(f"<w:tc>{_docx_paragraph(cell)}</w:tc>" for cell in row) + "</w:tr>" for row in table
        )
        body += f"<w:tbl>{''.join(rows)}</w:tbl>"
    word = f'xmlns:w="{OFFICE}/wordprocessingml/2006/main"'
    styles = (
        '<w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/>'
        '<w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style>'
    )
    return _office(
        "word/document.xml",
        f"{TYPES}.wordprocessingml.document.main+xml",
        {
            "word/document.xml": f"<w:document {word}><w:body>{body}</w:body></w:document>",
            "word/styles.xml": f"<w:styles {word}>{styles}</w:styles>",
            "word/_rels/document.xml.rels": _relations([("styles", "styles.xml")]),
        },
        {"/word/styles.xml": f"{TYPES}.wordprocessingml.styles+xml"},
    )


def xlsx(sheets: Mapping[str, Iterable[Sequence[str | int | float]]]) -> bytes:
    """A workbook with the rows of each sheet."""
    main = f'xmlns="{OFFICE}/spreadsheetml/2006/main"'
    parts: dict[str, str] = {}
    types: dict[str, str] = {}
    relations = []
    listed = []
    for number, (name, rows) in enumerate(sheets.items(), start=1):
        lines = "".join(_xlsx_row(index, row) for index, row in enumerate(rows, start=1))
        parts[f"xl/worksheets/sheet{number}.xml"] = f"<worksheet {main}><sheetData>{lines}</sheetData></worksheet>"
        types[f"/xl/worksheets/sheet{number}.xml"] = f"{TYPES}.spreadsheetml.worksheet+xml"
        relations.append(("worksheet", f"worksheets/sheet{number}.xml"))
        listed.append(f'<sheet name="{escape(name)}" sheetId="{number}" r:id="rId{number}"/>')
    related = f'xmlns:r="{OFFICE}/officeDocument/2006/relationships"'
    parts["xl/workbook.xml"] = f"<workbook {main} {related}><sheets>{''.join(listed)}</sheets></workbook>"
    parts["xl/_rels/workbook.xml.rels"] = _relations(relations)
    return _office("xl/workbook.xml", f"{TYPES}.spreadsheetml.sheet.main+xml", parts, types)


def pptx(slides: Sequence[Section]) -> bytes:
    """Slides, each with a title and lines of text."""
    spaces = (
        f'xmlns:a="{OFFICE}/drawingml/2006/main" xmlns:p="{OFFICE}/presentationml/2006/main" '
        f'xmlns:r="{OFFICE}/officeDocument/2006/relationships"'
    )
    parts: dict[str, str] = {}
    types: dict[str, str] = {}
    for number, (title, lines) in enumerate(slides, start=1):
        shapes = _pptx_shape(2, "title", [title]) + _pptx_shape(3, "body", lines)
        parts[f"ppt/slides/slide{number}.xml"] = (
            f'<p:sld {spaces}><p:cSld><p:spTree><p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/>'
            f"</p:nvGrpSpPr><p:grpSpPr/>{shapes}</p:spTree></p:cSld></p:sld>"
        )
        types[f"/ppt/slides/slide{number}.xml"] = f"{TYPES}.presentationml.slide+xml"
    numbers = range(1, len(slides) + 1)
    ids = "".join(f'<p:sldId id="{255 + number}" r:id="rId{number}"/>' for number in numbers)
    parts["ppt/presentation.xml"] = f"<p:presentation {spaces}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>"
    parts["ppt/_rels/presentation.xml.rels"] = _relations([("slide", f"slides/slide{n}.xml") for n in numbers])
    return _office("ppt/presentation.xml", f"{TYPES}.presentationml.presentation.main+xml", parts, types)


def epub(title: str, chapters: Sequence[Section]) -> bytes:
    """A book; each chapter is a file of its own."""
    files = {
        f"chapter{number}.xhtml": '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">'
        f"<head><title>{escape(heading)}</title></head><body>{_html_section(heading, paragraphs)}</body></html>"
        for number, (heading, paragraphs) in enumerate(chapters, start=1)
    }
    items = "".join(f'<item id="{name}" href="{name}" media-type="application/xhtml+xml"/>' for name in files)
    spine = "".join(f'<itemref idref="{name}"/>' for name in files)
    package = (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="id">sample</dc:identifier>'
        f"<dc:title>{escape(title)}</dc:title><dc:language>en</dc:language></metadata>"
        f"<manifest>{items}</manifest><spine>{spine}</spine></package>"
    )
    container = (
        '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        '<rootfiles><rootfile full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/></rootfiles>'
        "</container>"
    )
    return archive(
        {
            "mimetype": b"application/epub+zip",
            "META-INF/container.xml": container.encode(),
            "OEBPS/content.opf": package.encode(),
            **{f"OEBPS/{name}": text.encode() for name, text in files.items()},
        }
    )


def html(title: str, sections: Sequence[Section]) -> bytes:
    """A web page in UTF-8."""
    body = "".join(_html_section(heading, paragraphs) for heading, paragraphs in sections)
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>'
        f"<body>{body}</body></html>"
    ).encode()


def eml(subject: str, text: str, *, sender: str = "ada@example.org", recipient: str = "charles@example.org") -> bytes:
    """An e-mail of plain text."""
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = subject, sender, recipient
    message["Date"] = "Wed, 01 Jan 2025 00:00:00 +0000"
    message["Message-ID"] = "<sample@example.org>"
    message.set_content(text)
    return message.as_bytes()


def markdown(title: str, sections: Sequence[Section]) -> bytes:
    parts = [f"# {title}"]
    for heading, paragraphs in sections:
        parts += [f"## {heading}", *paragraphs]
    return "\n\n".join(parts).encode() + b"\n"


def archive(members: Mapping[str, bytes]) -> bytes:
    """A zip file with these members, in this order."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, content in members.items():
            # A book's type must be its first member and not compressed.
            how = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            info = zipfile.ZipInfo(name, MOMENT)
            info.external_attr = 0o644 << 16
            packed.writestr(info, content, how)
    return buffer.getvalue()


def _page_content(lines: Sequence[str]) -> bytes:
    content = bytearray(b"BT\n")
    for number, line in enumerate(lines):
        size, move = (20, b"60 770 Td") if number == 0 else (11, b"0 -30 Td" if number == 1 else b"0 -15 Td")
        content += b"/F1 %d Tf %s (" % (size, move) + _pdf_string(line) + b") Tj\n"
    return bytes(content + b"ET")


def _pdf_string(text: str) -> bytes:
    raw = text.encode("cp1252", "replace")
    return raw.replace(b"\\", rb"\\").replace(b"(", rb"\(").replace(b")", rb"\)")


def _docx_paragraph(text: str, style: str = "") -> str:
    look = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{look}<w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'


def _xlsx_row(index: int, row: Sequence[str | int | float]) -> str:
    cells = "".join(
        f'<c t="inlineStr"><is><t>{escape(cell)}</t></is></c>' if isinstance(cell, str) else f"<c><v>{cell}</v></c>"
        for cell in row
    )
    return f'<row r="{index}">{cells}</row>'


def _pptx_shape(number: int, kind: str, lines: Sequence[str]) -> str:
    text = "".join(f"<a:p><a:r><a:t>{escape(line)}</a:t></a:r></a:p>" for line in lines)
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="{number}" name="{kind}"/><p:cNvSpPr/><p:nvPr><p:ph type="{kind}"/></p:nvPr>'
        f"</p:nvSpPr><p:spPr/><p:txBody><a:bodyPr/>{text}</p:txBody></p:sp>"
    )


def _html_section(heading: str, paragraphs: Sequence[str]) -> str:
    return f"<h1>{escape(heading)}</h1>" + "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)


def _relations(targets: Sequence[tuple[str, str]], base: str = f"{OFFICE}/officeDocument/2006/relationships") -> str:
    listed = "".join(
        f'<Relationship Id="rId{number}" Type="{base}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, start=1)
    )
    return f'<Relationships xmlns="{OFFICE}/package/2006/relationships">{listed}</Relationships>'


def _office(main: str, main_type: str, parts: Mapping[str, str], types: Mapping[str, str]) -> bytes:
    overrides = "".join(
        f'<Override PartName="{name}" ContentType="{kind}"/>' for name, kind in {f"/{main}": main_type, **types}.items()
    )
    content_types = (
        f'<Types xmlns="{OFFICE}/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{overrides}</Types>'
    )
    head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
    members = {"[Content_Types].xml": content_types, "_rels/.rels": _relations([("officeDocument", main)]), **parts}
    return archive({name: (head + text).encode() for name, text in members.items()})

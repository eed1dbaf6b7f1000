"""PDF: a long or large one is read in parts, and its images are taken one at a time.

kreuzberg holds a whole file with all its objects at once, and needs more than its share of time for many pages. pdfium
opens a file without reading it, so a file of many pages, or of many bytes for few, is cut into small files first, in
which nothing is left that no page shows. An image that would not fit in memory is never decoded.
"""

import hashlib
import io
import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pypdfium2
from pypdfium2 import raw

from jobs.documents.errors import DAMAGED, PASSWORD, UnreadableDocument
from jobs.documents.file_types import PDF
from jobs.documents.pipeline.archive import MAX_ASSET_BYTES, MAX_ASSETS
from jobs.documents.pipeline.extract import PARSER, clean, extract
from jobs.documents.pipeline.headings import Page, place_headings
from jobs.documents.pipeline.parsed import Asset, ParsedDocument, title_of, with_text

PART_PAGES = 100
PART_BYTES = 8 << 20  # of the file, for the pages of one part
MIN_IMAGE_SIDE = 32  # pixels; smaller ones are rules, bullets and buttons
MAX_IMAGE_PIXELS = 16_000_000  # 64 MB while it is decoded
MAX_DEPTH = 5  # of forms inside forms

_SPELLINGS = ("ASCII85Decode", "ASCIIHexDecode")  # of bytes, as text: they pack nothing

log = logging.getLogger("oomph.documents")


def parse_pdf(path: Path) -> ParsedDocument:
    """The pages of a PDF with their headings, and its images."""
    try:
        with closing(pypdfium2.PdfDocument(path)) as opened:
            count = len(opened)
            title = opened.get_metadata_value("Title")
    except pypdfium2.PdfiumError as error:
        if error.err_code == raw.FPDF_ERR_PASSWORD:
            raise UnreadableDocument(PASSWORD) from None
        count = 0  # kreuzberg says what is wrong with it
        title = ""
    size = path.stat().st_size
    if count and (count > PART_PAGES or size > PART_BYTES):
        pages = _in_parts(path, count, max(1, min(PART_PAGES, count * PART_BYTES // size)))
    else:
        pages = iter(_pages(path, 0))
    first, pages = with_text(pages)
    assets = _images(path) if count else ()
    return ParsedDocument(PDF, title_of(clean(title), first), count or None, pages, assets, PARSER)


def _in_parts(path: Path, count: int, step: int) -> Iterator[Page]:
    with TemporaryDirectory(prefix="oomph-") as folder:
        part = Path(folder, "part.pdf")
        for start in range(0, count, step):
            try:
                # Opened anew for each part, because it keeps what it has read.
                with closing(pypdfium2.PdfDocument(path)) as whole, closing(pypdfium2.PdfDocument.new()) as cut:
                    cut.import_pages(whole, list(range(start, min(start + step, count))))
                    cut.save(part)
            except pypdfium2.PdfiumError:
                raise UnreadableDocument(DAMAGED) from None
            yield from _pages(part, start)


def _pages(path: Path, before: int) -> Iterable[Page]:
    result = extract(path, PDF, "markdown")
    pages = [Page(before + page["page_number"], clean(page["content"])) for page in result.pages or []]
    return place_headings(pages, clean(result.content))


def _images(path: Path) -> Iterator[Asset]:
    seen: set[str] = set()
    with closing(pypdfium2.PdfDocument(path)) as whole:
        for number in range(1, len(whole) + 1):
            try:
                with closing(whole[number - 1]) as page:
                    yield from _images_of(page, number, seen)
            except pypdfium2.PdfiumError as error:
                log.warning("page %d has no images that can be read: %s", number, error)
            if len(seen) >= MAX_ASSETS:
                log.warning("only the first %d images are kept", MAX_ASSETS)
                return


def _images_of(page: pypdfium2.PdfPage, number: int, seen: set[str]) -> Iterator[Asset]:
    for index, image in enumerate(page.get_objects([raw.FPDF_PAGEOBJ_IMAGE], max_depth=MAX_DEPTH), 1):
        if len(seen) >= MAX_ASSETS:
            return
        try:
            asset = _asset(image, number, index, seen)
        except (pypdfium2.PdfiumError, OSError, ValueError) as error:
            log.warning("image %d of page %d is damaged: %s", index, number, error)
            continue
        if asset is not None:
            yield asset


def _asset(image: pypdfium2.PdfImage, page: int, index: int, seen: set[str]) -> Asset | None:
    width, height = image.get_px_size()
    if min(width, height) < MIN_IMAGE_SIDE or width * height > MAX_IMAGE_PIXELS:
        return None
    filters = image.get_filters()
    if len([each for each in filters if each not in _SPELLINGS]) > 1:
        return None  # packed twice, so nothing bounds what it unpacks to
    stored = image.get_data()
    # Of what is stored, not of what an encoder makes of it: that may change with the encoder.
    digest = hashlib.sha256(b"%d,%d:" % (width, height))
    digest.update(stored)
    name = digest.hexdigest()[:16]
    if name in seen or len(stored) > MAX_ASSET_BYTES:
        return None
    seen.add(name)
    key = f"page-{page}-image-{index}-{name}"
    if filters[-1:] == ["DCTDecode"]:
        return Asset(f"{key}.jpg", "image/jpeg", page, bytes(image.get_data(decode_simple=True)))
    buffer = io.BytesIO()
    image.get_bitmap().to_pil().save(buffer, "PNG")
    return Asset(f"{key}.png", "image/png", page, buffer.getvalue())

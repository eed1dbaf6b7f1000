"""Images of documents: each once, under a key that is the same every time."""

import io
import zlib
from pathlib import Path

import pytest
from PIL import Image
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from jobs.documents.pipeline import archive, pdf
from jobs.documents.pipeline.parse import Asset
from jobs.documents.pipeline.parsed import within
from scripts import samples
from tests.documents import hostile
from tests.documents.conftest import parsed


def image(color: str, kind: str = "PNG", side: int = 64) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), color).save(buffer, kind)
    return buffer.getvalue()


def illustrated_pdf(*pages: list[bytes]) -> bytes:
    buffer = io.BytesIO()
    canvas = Canvas(buffer, invariant=1)
    for number, images in enumerate(pages):
        canvas.drawString(72, 700, f"Page {number}")
        for index, each in enumerate(images):
            canvas.drawImage(ImageReader(io.BytesIO(each)), 72 + 100 * index, 400, 80, 80)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def illustrated_docx(**images: bytes) -> bytes:
    parts = {f"word/media/{name}": lambda part, _, image=image: part.write(image) for name, image in images.items()}
    return hostile.with_parts(samples.docx(hostile.SECTIONS), parts)


def assets(filename: str, content: bytes) -> list[Asset]:
    return list(parsed(filename, content).assets)


def test_the_images_of_a_pdf_come_with_their_page_and_as_they_look() -> None:
    found = assets("a.pdf", illustrated_pdf([image("red")], [image("green"), image("blue", "JPEG")]))
    assert [(each.page, each.mime_type, each.key.rsplit("-", 1)[0]) for each in found] == [
        (1, "image/png", "page-1-image-1"),
        (2, "image/png", "page-2-image-1"),
        (2, "image/jpeg", "page-2-image-2"),
    ]
    pixels = [Image.open(io.BytesIO(each.content)).convert("RGB").getpixel((10, 10)) for each in found]
    assert pixels[:2] == [(255, 0, 0), (0, 128, 0)]
    assert pixels[2] == pytest.approx((0, 0, 255), abs=8)


def test_the_images_of_an_office_file_are_copied_as_they_are() -> None:
    red, blue = image("red"), image("blue", "JPEG")
    found = assets("a.docx", illustrated_docx(**{"image1.png": red, "image2.jpeg": blue, "thumb.emf": b"EMF"}))
    assert [(each.page, each.mime_type, each.content) for each in found] == [
        (None, "image/png", red),
        (None, "image/jpeg", blue),
    ]


def test_the_same_document_gives_the_same_keys() -> None:
    for name, content in (
        ("a.pdf", illustrated_pdf([image("red"), image("blue", "JPEG")])),
        ("a.docx", illustrated_docx(**{"image1.png": image("red")})),
    ):
        first, second = assets(name, content), assets(name, content)
        assert first
        assert first == second


def test_an_image_that_stands_on_every_page_is_one() -> None:
    assert [each.page for each in assets("a.pdf", illustrated_pdf([image("red")], [image("red")]))] == [1]
    assert len(assets("a.docx", illustrated_docx(**{"a.png": image("red"), "b.png": image("red")}))) == 1


def test_bullets_and_images_that_would_not_fit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert assets("a.pdf", illustrated_pdf([image("red", side=16)])) == []
    monkeypatch.setattr(pdf, "MAX_IMAGE_PIXELS", 64 * 64 - 1)
    assert assets("a.pdf", illustrated_pdf([image("red")])) == []
    monkeypatch.setattr(archive, "MAX_ASSET_BYTES", 10)
    assert assets("a.docx", illustrated_docx(**{"image1.png": image("red")})) == []


def test_no_more_than_a_bound_of_images_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_ASSETS", 1)
    monkeypatch.setattr(pdf, "MAX_ASSETS", 1)
    assert len(assets("a.pdf", illustrated_pdf([image("red"), image("blue")]))) == 1
    assert len(assets("a.docx", illustrated_docx(**{"a.png": image("red"), "b.png": image("blue")}))) == 1


def test_the_images_of_a_document_are_bounded_together() -> None:
    one = Asset("a.png", "image/png", None, bytes(600))
    assert list(within([one] * 5, 2_000)) == [one] * 3


def test_a_damaged_image_costs_itself_alone() -> None:
    content = illustrated_docx(**{"a.png": image("red"), "b.png": image("blue")})
    packed = zlib.compress(image("red"), 6)[2:-4]
    at = content.index(packed[:40])
    damaged = content[:at] + bytes(20) + content[at + 20 :]
    assert [each.content for each in assets("a.docx", damaged)] == [image("blue")]


def test_an_image_is_read_only_when_it_is_asked_for(tmp_path: Path) -> None:
    from jobs.documents.pipeline.parse import parse

    path = tmp_path / "a.docx"
    path.write_bytes(illustrated_docx(**{"a.png": image("red")}))
    found = iter(parse("a.docx", path).assets)
    assert next(found).mime_type == "image/png"
    assert next(found, None) is None

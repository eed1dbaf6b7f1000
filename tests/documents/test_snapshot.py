"""The snapshot: what is read is what was written, or an error that says what is wrong with the file."""

import gzip
import hashlib
import json
import resource
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from jobs.documents.pipeline.chunk import Chunk, chunk_id
from jobs.documents.pipeline.snapshot import FORMAT, SnapshotError, SnapshotHeader, SnapshotWriter, read_snapshot

DOCUMENT = UUID(int=7)
HEADER = SnapshotHeader(
    document_id=DOCUMENT,
    filename="a\n b.pdf",
    sha256="0" * 64,
    size=12,
    mime_type="application/pdf",
    title=None,
    pages=3,
    parser="parser 1",
    chunker="chunker 1",
    created_by="oomph 0",
)


def chunks(count: int) -> Iterator[Chunk]:
    for position in range(count):
        text = f"line\n {position} ÄÖ \u2028 \N{GRINNING FACE} \x00 \x02"
        yield Chunk(chunk_id(DOCUMENT, position, text), position, position or None, "A > B", text)


def write(path: Path, count: int = 3) -> Path:
    with SnapshotWriter(path, HEADER) as writer:
        for chunk in chunks(count):
            writer.write(chunk)
    return path


def read(path: Path) -> tuple[SnapshotHeader, list[Chunk]]:
    header, stream = read_snapshot(path)
    return header, list(stream)


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_what_is_read_is_what_was_written(tmp_path: Path, count: int) -> None:
    assert read(write(tmp_path / "s", count)) == (HEADER, list(chunks(count)))


def test_the_same_document_gives_the_same_bytes(tmp_path: Path) -> None:
    assert write(tmp_path / "a").read_bytes() == write(tmp_path / "b").read_bytes()


def test_it_is_lines_of_json_that_any_tool_unpacks(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in gzip.decompress(write(tmp_path / "s", 2).read_bytes()).splitlines()]
    assert lines[0]["format"] == FORMAT
    assert [line["text"] for line in lines[1:-1]] == [chunk.text for chunk in chunks(2)]
    assert lines[-1]["chunks"] == 2


def test_a_file_cut_off_anywhere_is_noticed(tmp_path: Path) -> None:
    whole = write(tmp_path / "s", 20).read_bytes()
    for length in range(len(whole)):
        (tmp_path / "s").write_bytes(whole[:length])
        with pytest.raises(SnapshotError, match=r"The snapshot is damaged: .*Parse the document again"):
            read(tmp_path / "s")


def test_a_changed_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    whole = bytearray(write(tmp_path / "s", 20).read_bytes())
    unnoticed = []
    for place in range(len(whole)):
        whole[place] ^= 0x10
        (tmp_path / "s").write_bytes(whole)
        try:
            if read(tmp_path / "s") != (HEADER, list(chunks(20))):
                unnoticed.append(place)
        except SnapshotError:
            pass
        whole[place] ^= 0x10
    assert unnoticed == []


def rewrite(path: Path, change: Callable[[list[bytes]], None], *, close: bool = True) -> Path:
    lines = gzip.decompress(write(path).read_bytes()).splitlines(keepends=True)
    change(lines)
    if close:
        body = b"".join(lines[:-1])
        digest = hashlib.sha256(body).hexdigest()
        lines[-1] = json.dumps({"chunks": len(lines) - 2, "sha256": digest}).encode() + b"\n"
    path.write_bytes(gzip.compress(b"".join(lines)))
    return path


def test_chunks_that_are_missing_or_in_another_order_are_noticed(tmp_path: Path) -> None:
    for change in (lambda lines: lines.pop(2), lambda lines: lines.insert(1, lines.pop(2)), lambda lines: lines.pop()):
        with pytest.raises(SnapshotError, match="damaged"):
            read(rewrite(tmp_path / "s", change, close=False))


@pytest.mark.parametrize("line", [b"{}\n", b"[]\n", b"\n", b"not json\n", b'{"id": "x"}\n'])
def test_a_line_that_is_no_chunk_is_noticed(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(SnapshotError, match="a line of it is not what was written"):
        read(rewrite(tmp_path / "s", lambda lines: lines.insert(1, line)))


def test_a_newer_format_says_that_it_is_newer(tmp_path: Path) -> None:
    def newer(lines: list[bytes]) -> None:
        lines[0] = b'{"format": 2, "something": "else"}\n'

    with pytest.raises(SnapshotError, match="has the format 2, this release reads up to 1: upgrade, or parse"):
        read_snapshot(rewrite(tmp_path / "s", newer))


def test_keys_that_this_release_does_not_know_are_passed_over(tmp_path: Path) -> None:
    def extended(lines: list[bytes]) -> None:
        lines[:-1] = [line.rstrip()[:-1] + b', "language": "en"}\n' for line in lines[:-1]]

    assert read(rewrite(tmp_path / "s", extended)) == (HEADER, list(chunks(3)))


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", b"\x1f\x8b", gzip.compress(b""), gzip.compress(b"{}")],
    ids=["empty", "no gzip", "only a mark", "of nothing", "of no lines"],
)
def test_another_file_is_no_snapshot(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(SnapshotError, match="The snapshot is damaged"):
        read_snapshot(tmp_path / "s")


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "s", "wb", 1) as packed:
        for _ in range(200):
            packed.write(b" " * 1_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SnapshotError, match="a line of it does not end"):
        read_snapshot(tmp_path / "s")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_a_writer_that_was_left_by_an_exception_leaves_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), SnapshotWriter(tmp_path / "s", HEADER) as writer:  # noqa: PT012
        writer.write(next(chunks(1)))
        raise RuntimeError
    with pytest.raises(SnapshotError, match="damaged"):
        read(tmp_path / "s")


def test_a_long_document_passes_through_little_memory(tmp_path: Path) -> None:
    """40 MB of text, of which neither side holds a tenth."""
    text = "the analytical engine weaves algebraic patterns " * 30
    chunk = next(chunks(1))
    tracemalloc.start()
    try:
        with SnapshotWriter(tmp_path / "s", HEADER) as writer:
            for position in range(28_000):
                writer.write(replace(chunk, position=position, text=text))
        _, stream = read_snapshot(tmp_path / "s")
        assert sum(1 for _ in stream) == writer.chunks == 28_000
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()

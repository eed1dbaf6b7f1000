"""Keeps what Word files and XML write as character references, such as the ampersand of `R&amp;D`.

kreuzberg 4.10 drops them there ("RD"; https://github.com/xberg-io/xberg/issues/1242, mended in its successor only). So
they are written as the characters themselves before it reads; the five that XML cannot hold are written as private
characters that `restore` turns back afterwards. To be removed with the first release that does not need it.
"""

import re
import zipfile
import zlib
from pathlib import Path

MAX_XML_BYTES = 64 << 20  # unpacked; a file beyond it, perhaps a bomb, goes to kreuzberg as it is, which has limits too

_PART = re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")
_REFERENCE = re.compile(r"&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|(amp|lt|gt|quot|apos));")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_PRIVATE = {ord(char): chr(0xF8E0 + number) for number, char in enumerate("&<>\"'")}
_PUBLIC = {ord(private): chr(code) for code, private in _PRIVATE.items()}


def spell_out_word(path: Path, target: Path) -> bool:
    """Write a .docx without character references to `target`; False where it has none or is no such file."""
    try:
        with zipfile.ZipFile(path) as packed:
            members = packed.infolist()
            parts = [member for member in members if _PART.fullmatch(member.filename)]
            if sum(member.file_size for member in parts) > MAX_XML_BYTES:
                return False
            texts = {member.filename: packed.read(member) for member in parts}
            if not any(b"&" in text for text in texts.values()):
                return False
            with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as rewritten:
                for member in members:
                    if member.filename in texts:
                        rewritten.writestr(member.filename, _spell_out_part(texts[member.filename]))
                    elif member.filename.endswith((".xml", ".rels")) and member.file_size <= MAX_XML_BYTES:
                        rewritten.writestr(member.filename, packed.read(member))
            return True
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError):
        return False  # kreuzberg says what is wrong with it


def spell_out_xml(text: str) -> str:
    """XML without character references."""
    return _REFERENCE.sub(_spelt, text)


def restore(text: str) -> str:
    """The text as its author wrote it."""
    return text.translate(_PUBLIC)


def _spell_out_part(content: bytes) -> bytes:
    try:
        return spell_out_xml(content.decode("utf-8")).encode()
    except UnicodeError:
        return content


def _spelt(reference: re.Match[str]) -> str:
    decimal, hexadecimal, name = reference.groups()
    code = ord(_NAMED[name]) if name else int(decimal) if decimal else int(hexadecimal, 16)
    if not (code in (9, 10, 13) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF):
        return reference[0]  # no character of XML
    return _PRIVATE.get(code, chr(code))

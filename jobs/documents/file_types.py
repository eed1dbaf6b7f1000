"""The types of files that can be read, and those that are told by their first bytes to be none of them."""

import re

PDF = "application/pdf"
HTML = "text/html"
XHTML = "application/xhtml+xml"
XML = "application/xml"
JSON = "application/json"
RTF = "application/rtf"
MARKDOWN = "text/markdown"
PLAIN = "text/plain"

_OFFICE = "application/vnd.openxmlformats-officedocument."
_OPEN = "application/vnd.oasis.opendocument."
WORD = f"{_OFFICE}wordprocessingml.document"
SHEET = f"{_OFFICE}spreadsheetml.sheet"
SLIDES = f"{_OFFICE}presentationml.presentation"
EPUB = "application/epub+zip"

# In a ZIP file. A folder of it tells the family of an office file; which of the family it is, its name.
ZIP_SUFFIXES = {
    "docx": WORD,
    "dotx": f"{_OFFICE}wordprocessingml.template",
    "docm": "application/vnd.ms-word.document.macroEnabled.12",
    "dotm": "application/vnd.ms-word.template.macroEnabled.12",
    "xlsx": SHEET,
    "xltx": f"{_OFFICE}spreadsheetml.template",
    "xlsm": "application/vnd.ms-excel.sheet.macroEnabled.12",
    "xlsb": "application/vnd.ms-excel.sheet.binary.macroEnabled.12",
    "xlam": "application/vnd.ms-excel.addin.macroEnabled.12",
    "pptx": SLIDES,
    "ppsx": f"{_OFFICE}presentationml.slideshow",
    "potx": f"{_OFFICE}presentationml.template",
    "pptm": "application/vnd.ms-powerpoint.presentation.macroEnabled.12",
    "potm": "application/vnd.ms-powerpoint.template.macroEnabled.12",
    "epub": EPUB,
    "odt": f"{_OPEN}text",
    "ods": f"{_OPEN}spreadsheet",
    "hwpx": "application/haansofthwpx",
    "pages": "application/x-iwork-pages-sffpages",
    "numbers": "application/x-iwork-numbers-sffnumbers",
    "key": "application/x-iwork-keynote-sffkey",
}
ZIP_TYPES = frozenset(ZIP_SUFFIXES.values())
ZIP_FOLDERS = {"word/": WORD, "xl/": SHEET, "ppt/": SLIDES}
ZIP_FAMILIES = {
    WORD: frozenset(ZIP_SUFFIXES[suffix] for suffix in ("docx", "dotx", "docm", "dotm")),
    SHEET: frozenset(ZIP_SUFFIXES[suffix] for suffix in ("xlsx", "xltx", "xlsm", "xlsb", "xlam")),
    SLIDES: frozenset(ZIP_SUFFIXES[suffix] for suffix in ("pptx", "ppsx", "potx", "pptm", "potm")),
}
# These say what they are in a part called `mimetype`, and need another one.
ZIP_PARTS = {EPUB: "META-INF/container.xml", f"{_OPEN}text": "content.xml", f"{_OPEN}spreadsheet": "content.xml"}

# In Microsoft's older container; the name of a stream in it tells the type.
OLE_STREAMS = {
    "WordDocument": "application/msword",
    "Workbook": "application/vnd.ms-excel",
    "PowerPoint Document": "application/vnd.ms-powerpoint",
    "__properties_version1.0": "application/vnd.ms-outlook",
}
OLE_SUFFIXES = {
    "doc": "application/msword",
    "dot": "application/msword",
    "xls": "application/vnd.ms-excel",
    "xlt": "application/vnd.ms-excel",
    "ppt": "application/vnd.ms-powerpoint",
    "pot": "application/vnd.ms-powerpoint",
    "msg": "application/vnd.ms-outlook",
    "hwp": "application/x-hwp",
}
OLE_TYPES = frozenset(OLE_SUFFIXES.values())

# Told by their name alone.
BINARY_SUFFIXES = {"dbf": "application/x-dbf", "pst": "application/vnd.ms-outlook-pst"}

TEXT_SUFFIXES = {
    "bib": "application/x-bibtex",
    "csv": "text/csv",
    "dbk": "application/docbook+xml",
    "djot": "text/x-djot",
    "docbook": "application/docbook+xml",
    "eml": "message/rfc822",
    "enw": "application/x-endnote+xml",
    "fb2": "application/x-fictionbook+xml",
    "htm": HTML,
    "html": HTML,
    "ipynb": "application/x-ipynb+json",
    "jats": "application/x-jats+xml",
    "json": JSON,
    "jsonl": "application/x-ndjson",
    "latex": "application/x-latex",
    "markdown": MARKDOWN,
    "md": MARKDOWN,
    "mdx": "text/mdx",
    "nbib": "application/x-pubmed",
    "ndjson": "application/x-ndjson",
    "opml": "application/xml+opml",
    "org": "text/x-org",
    "ris": "application/x-research-info-systems",
    "rst": "text/x-rst",
    "tex": "application/x-latex",
    "toml": "application/toml",
    "tsv": "text/tab-separated-values",
    "txt": PLAIN,
    "text": PLAIN,
    "log": PLAIN,
    "typ": "application/x-typst",
    "typst": "application/x-typst",
    "xhtml": XHTML,
    "xml": XML,
    "yaml": "application/x-yaml",
    "yml": "application/x-yaml",
}
TEXT_TYPES = frozenset(TEXT_SUFFIXES.values())

BY_SUFFIX = {
    "pdf": PDF,
    "rtf": RTF,
    **ZIP_SUFFIXES,
    **OLE_SUFFIXES,
    **BINARY_SUFFIXES,
    **TEXT_SUFFIXES,
}

# None is so short that a text could begin with it.
_SIGNATURES = {
    "pictures": rb"\x89PNG\r|\xff\xd8\xff|GIF8[79]a|II\*\0|MM\0\*|BM.{4}\0{4}|\0\0[\x01\x02]\0|8BPS\0|.{4}JXL ",
    "sound": rb"ID3[\x02-\x04]\0|fLaC\0|OggS\0|MThd\0|\xff[\xfb\xf3\xf2]",
    "films": rb".{4}ftyp|RIFF.{4}(?:WEBP|WAVE|AVI )|\x1aE\xdf\xa3|\0\0\x01[\xb3\xba]|FLV\x01",
    "archives": rb"7z\xbc\xaf|Rar!\x1a|\x1f\x8b\x08|BZh[1-9]1AY|\xfd7zXZ|\x28\xb5\x2f\xfd|PK\x05\x06|!<arch>\n|MSCF\0"
    rb"|.{257}ustar",
    "programs": rb"\x7fELF|MZ.{0,60}\0|\xca\xfe\xba\xbe|[\xce\xcf]\xfa\xed\xfe|\0asm",
    "databases": rb"SQLite format 3\0",
}
REFUSED = re.compile(b"|".join(_SIGNATURES.values()), re.DOTALL)

"""How the site of the documentation is made; `scripts/docs` runs it."""

import tomllib
from pathlib import Path

with (Path(__file__).parent.parent / "pyproject.toml").open("rb") as pyproject:
    release = tomllib.load(pyproject)["project"]["version"]

project = "Oomph"
version = release
extensions = ["myst_parser"]
myst_enable_extensions = ["attrs_block"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"Oomph {release}"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_use_index = False
html_extra_path = ["grafana-dashboard.json"]
pygments_style = "friendly"
pygments_dark_style = "native"

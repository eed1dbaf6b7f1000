"""The optional parts of the package, as `pyproject.toml` names them."""


def how_to_install(extra: str) -> str:
    """What a person types who lacks it."""
    return f"pip install 'oomph[{extra}]', or in a checkout pip install -e '.[{extra}]'"

"""Reads the files under requirements/."""

from pathlib import Path

REQUIREMENTS = Path(__file__).parents[2] / "requirements"


def entries(file: str) -> list[tuple[str, list[str]]]:
    """Each pin of a file, with the hashes of the files that may be installed for it."""
    text = (REQUIREMENTS / file).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [
        (pin.strip(), [each.strip() for each in hashes])
        for pin, *hashes in (line.split("--hash=") for line in lines)
    ]


def pins(file: str) -> list[str]:
    """The pins of a file, `name==version` each, with a marker at times."""
    return [pin for pin, _ in entries(file)]

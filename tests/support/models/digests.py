"""The digest that names a model here, as a service names it."""

from pathlib import Path

from relaxd.contract.model_files import digest_of_files, digest_of_piece
from relaxd.contract.model_tar import files_at


def digest_at(path: Path) -> str:
    """`sha256:...` of the model in a folder, a tar, or a file and beside it."""
    files = files_at(path)
    return digest_of_files({name: (digest_of_piece(one), one.size) for name, one in files.items()})

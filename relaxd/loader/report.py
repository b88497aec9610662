"""The report of a bundle on disk, from its own documents and the profiles beside them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relaxd.contract.bundle import kernels, numerics, profile
from relaxd.contract.bundle.profile import Profile
from relaxd.contract.bundle.report import Report
from relaxd.contract.documents import MAX_BYTES, read_json
from relaxd.errors import BundleError
from relaxd.loader.bundles.bundle import Bundle, open_bundle
from relaxd.reports.assemble import assemble


def report_of(path: Path) -> Report:
    """Everything known of the bundle, a folder or a tar; raises BundleError."""
    with open_bundle(path) as bundle:
        profiles = sorted(
            (Profile.from_json(_document(file)) for file in profile_files(Path(bundle.directory))),
            key=lambda one: one.measured_at or "",
        )
        compared = _reported(bundle, numerics.FILENAME)
        return assemble(bundle.manifest, compared, kernels_of(bundle), profiles)


def profile_files(directory: Path) -> Sequence[Path]:
    """The profiles of an unpacked bundle; several machines may have measured it."""
    return sorted(directory.glob(profile.FILES))


def kernels_of(bundle: Bundle) -> list[Mapping[str, Any]]:
    """The notes of the library's kernels."""
    document = _reported(bundle, kernels.FILENAME)
    return list(kernels.kernels_of(document)) if document else []


def _reported(bundle: Bundle, name: str) -> Any:
    content = bundle.report(name)
    return None if content is None else read_json(content, name)


def _document(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return read_json(file.read(MAX_BYTES + 1), path.name)
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error}", file=path.name) from error

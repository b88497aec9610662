"""Chooses the best of several bundles that this machine can run."""

from collections.abc import Mapping

from relaxd.client.errors import PullError
from relaxd.client.pull import content_of, document_of
from relaxd.client.transport import Transport
from relaxd.contract.bundle.manifest import FILENAME, Manifest
from relaxd.contract.documents import read_json
from relaxd.errors import BundleError, LoadContractError
from relaxd.loader.machine.check import Probe, check_contract
from relaxd.loader.machine.devices import probe
from relaxd.loader.machine.host import Host, this_host

_STATUSES = ("compiled_only", "unverified", "emulated", "executed")


def best_of(manifests: Mapping[str, Manifest], host: Host, probe: Probe = probe) -> str:
    """The target whose bundle to take: a device before none, then the most of this CPU, then the
    better tested.

    A device that is the processor under another name comes last.
    Raises PullError, which lists for each bundle the requirements that this machine lacks.
    """
    refused: dict[str, str] = {}
    for target, manifest in manifests.items():
        try:
            check_contract(manifest, host, probe=probe)
        except LoadContractError as error:
            refused[target] = error.message
    able = [target for target in manifests if target not in refused]
    if not able:
        why = "; ".join(f"{target}: {reason}" for target, reason in refused.items())
        raise PullError(
            f"this machine can run none of the bundles: {why}",
            hint="compile for this machine's target",
        )
    return max(able, key=lambda target: _rank(manifests[target], probe))


def _rank(manifest: Manifest, probe: Probe) -> tuple[int, str, int, int]:
    status = manifest.target.get("status")
    tested = _STATUSES.index(status) if status in _STATUSES else 0
    driver = None if manifest.load.device == "cpu" else probe(manifest.load.device)
    device = 0 if driver is None else (-1 if driver.software else 1)
    return (device, manifest.load.sm or "", len(manifest.load.isa), tested)


def choose(transport: Transport, name: str, digests: Mapping[str, str]) -> str:
    """The digest of the best of some bundles, by target; raises PullError where this machine runs
    none.
    """
    if not digests:
        raise PullError(
            "there is no bundle to choose from", hint="wait until a build has succeeded"
        )
    manifests = {target: _manifest(transport, name, digest) for target, digest in digests.items()}
    return digests[best_of(manifests, this_host())]


def _manifest(transport: Transport, name: str, digest: str) -> Manifest:
    document = document_of(transport, name, digest)
    try:
        return Manifest.from_json(
            read_json(content_of(transport, name, document, FILENAME), FILENAME)
        )
    except BundleError as error:
        raise PullError(f"{digest} holds no readable {FILENAME}: {error}") from error

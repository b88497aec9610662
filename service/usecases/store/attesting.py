"""Attests bundles: each that a worker built, with its bill of materials and its signed provenance,
and those of the cache that no key, or another, has signed.
"""

import structlog

from artifacts.attestations import PROFILE, PROVENANCE, SBOM, attach
from artifacts.documents import is_complete, read_document
from artifacts.oci import ACTION_KEY, REPOSITORY, bundle_files
from artifacts.referrers import referrers_of_type
from relaxd.provenance.envelope import open_envelope, seal
from relaxd.provenance.errors import SigningFailed, TrustError
from relaxd.provenance.keys import PublicKey, Signer
from relaxd.provenance.sbom import Contents, sbom
from relaxd.provenance.statement import Subjects, provenance
from service.core import Core
from service.domain import Claim
from service.identity import bundles_of
from service.usecases.store import holdings

logger = structlog.get_logger("relaxd.worker")


def attach_profile(core: Core, claim: Claim, bundle: str, content: bytes) -> None:
    """Attach what the build measured of the bundle, unattested; raises StoreError."""
    repository = bundles_of(claim.tenant)
    digest = attach(core.store, PROFILE, content, bundle, repository)
    if claim.shared:
        core.store.references.refer(REPOSITORY, bundle, digest)


def attest(core: Core, claim: Claim, bundle: str, signer: Signer | None) -> None:
    """Attach both to the bundle of that digest; without a signer, the bill of materials alone.

    What is stated is what this worker asked of the compile process, which the model may have
    subverted, and not what that process reports. Raises SigningFailed and StoreError.
    """
    key = core.compiler.action_key(claim.kind, claim.model, claim.request, claim.target)
    if key.digest != claim.action_key:
        raise SigningFailed(
            f"the toolchain changed during the build of {claim.action_key}",
            hint="restart the worker",
        )
    files = bundle_files(read_document(core.store.blobs, bundle))
    subjects = Subjects(bundle, {name: layer.digest for name, layer in files.items()})
    toolchain = key.parts.get("toolchain", {})
    contents = Contents(subjects, toolchain, str(key.parts.get("pipeline", "")))
    repository = bundles_of(claim.tenant)
    attached = [attach(core.store, SBOM, sbom(contents), bundle, repository)]
    if signer:
        builder = core.settings.builder_id
        # What tenants share names none of them.
        name = REPOSITORY if claim.shared else repository
        statement = provenance(subjects, name, claim.target, key, builder)
        sealed = seal(statement, signer)
        attached.append(attach(core.store, PROVENANCE, sealed, bundle, repository))
    for digest in attached if claim.shared else ():
        # There whoever is given the bundle later finds them.
        core.store.references.refer(REPOSITORY, bundle, digest)


def attest_known(core: Core, claim: Claim, bundle: str, signer: Signer | None) -> None:
    """Attest a bundle that the cache has for the claim, where the signer has not signed it: there
    was no key when it was built, or another one. Raises as `attest`.
    """
    if signer is None or is_signed(core, bundle, bundles_of(claim.tenant), signer.public):
        return
    if read_document(core.store.blobs, bundle).annotations.get(ACTION_KEY) != claim.action_key:
        logger.warning("a cached bundle names another action key, and is not signed", bundle=bundle)
        return
    attest(core, claim, bundle, signer)
    holdings.give(core, claim.tenant, bundle)


def is_signed(core: Core, bundle: str, repository: str, key: PublicKey) -> bool:
    """True if the key has signed the bundle, in an attestation of the repository."""
    return any(
        _names(core, referrer, bundle, key)
        for referrer in referrers_of_type(core.store, repository, bundle, PROVENANCE.artifact_type)
    )


def _names(core: Core, referrer: str, bundle: str, key: PublicKey) -> bool:
    """True if the referrer is an envelope of the key about the bundle: others may attach any."""
    blobs = core.store.blobs
    if not is_complete(blobs, referrer):
        return False
    document = read_document(blobs, referrer)
    if len(document.layers) != 1:
        return False
    try:
        statement = open_envelope(blobs.read(document.layers[0].digest), {key.id: key})
    except TrustError:
        return False
    about = [subject.get("digest", {}).get("sha256") for subject in statement.get("subject", ())]
    return bundle.removeprefix("sha256:") in about

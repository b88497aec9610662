"""Attests a bundle that this worker built: its bill of materials and its signed provenance."""

from artifacts.attestations import PROVENANCE, SBOM, attach
from artifacts.documents import read_document
from artifacts.oci import REPOSITORY, bundle_files
from relaxd.provenance.envelope import seal
from relaxd.provenance.errors import SigningFailed
from relaxd.provenance.keys import Signer
from relaxd.provenance.sbom import Contents, sbom
from relaxd.provenance.statement import Subjects, provenance
from service.core import Core
from service.domain import Claim
from service.identity import bundles_of


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

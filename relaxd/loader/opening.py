"""Loads a bundle from a folder or a tar: checks it, opens its library, makes a `Model`."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.options import Flavour
from relaxd.loader.bundles.bundle import Bundle, open_bundle
from relaxd.loader.bundles.library import COPIED
from relaxd.loader.engines.engine import VirtualMachine
from relaxd.loader.engines.threads import team_for
from relaxd.loader.forking import GATE
from relaxd.loader.machine import large_pages
from relaxd.loader.machine.check import check_contract
from relaxd.loader.machine.host import this_host
from relaxd.loader.model import Model
from relaxd.loader.tensors.binding import Binding

if TYPE_CHECKING:
    from relaxd.loader.metrics import CallMetrics
    from relaxd.provenance.freshness import Policy


def load(
    path: str | PathLike[str],
    *,
    threads: int | None = None,
    trust: "Policy | None" = None,
    metrics: "CallMetrics | None" = None,
    copy_weights: bool | None = None,
) -> Model:
    """Load a bundle, a directory or a tar.

    threads: how many to compute with; by default RELAXD_NUM_THREADS, else one for each physical
    core that the process may use, within the cgroup's CPU quota. With one thread, as many calls run
    at once as there are threads that call; with more, one call at a time.
    metrics: counts the calls of the model for Prometheus.
    copy_weights: whether weights are read into memory of this process, in large pages, instead of
    mapped from their file, which processes share; by default those of a library with state, whose
    calls read all of them for each token.
    trust: PEM files of ed25519 public keys; a folder of which any file is not signed by one of them
    is refused with TrustError; a `relaxd.NewestRelease` refuses older bundles as well. By default
    signatures are not looked at. Raises BundleError for an
    incomplete, corrupt or unreadable bundle, LoadContractError where this machine lacks what the
    bundle needs; all before any library is opened, so nothing untested is ever executed. Of reports
    (kernels.json, model.h, LICENSES) the sizes alone are compared: see `Bundle.report`.
    """
    if trust is not None:
        from relaxd.provenance.checking import check_folder

        check_folder(Path(path), trust)
    with _opened(path) as bundle:
        model = _built(bundle, threads, copy_weights)
        model = model if bundle.manifest.strings is None else _with_strings(bundle, model)
        return model.count_calls(metrics) if metrics else model


def load_library(
    path: str | PathLike[str], *, threads: int | None = None, copy_weights: bool | None = None
) -> Model:
    """`load`, without the steps on strings that a bundle may have around its library."""
    with _opened(path) as bundle:
        return _built(bundle, threads, copy_weights)


@contextmanager
def _opened(path: str | PathLike[str]) -> Iterator[Bundle]:
    """The bundle, which this machine can run, with its files compared."""
    with open_bundle(path) as bundle:
        check_contract(bundle.manifest, this_host())
        try:
            bundle.verify(COPIED)
            yield bundle
        finally:
            bundle.close()


def _built(bundle: Bundle, threads: int | None, copy_weights: bool | None) -> Model:
    with GATE:
        build = _standalone if bundle.manifest.flavour == Flavour.STANDALONE else _machine
        bundle.copied = _copied(bundle.manifest, copy_weights)
        return build(bundle, threads)


def _copied(manifest: Manifest, wanted: bool | None) -> bool:
    decodes = manifest.state is not None and large_pages.available()
    return decodes if wanted is None else wanted


def _with_strings(bundle: Bundle, model: Model) -> Model:
    from relaxd.loader.strings.model import StringModel, read_program

    return StringModel(model, read_program(bundle))


# These open libraries, which must not happen before the checks in `load`.
def _machine(bundle: Bundle, threads: int | None) -> Model:
    from relaxd.loader.engines.runtime import PROCESS, open_model
    from relaxd.loader.tensors.arrays import Transport

    PROCESS.require(bundle)
    manifest = bundle.manifest
    engine = VirtualMachine(open_model(bundle), Transport(manifest), manifest.inputs)
    team = team_for(threads, one_at_a_time=manifest.load.device != "cpu")
    return Model(manifest, engine, team, bundle.numerics().verified_up_to)


def _standalone(bundle: Bundle, threads: int | None) -> Model:
    from relaxd.loader.engines.standalone import opened_library

    return standalone_model(bundle, opened_library(bundle, bundle.manifest.library), threads)


def standalone_model(bundle: Bundle, library: Any, threads: int | None = None) -> Model:
    """A model by an open library of the bundle's interface; raises BundleError."""
    from relaxd.loader.engines.standalone import Code, StandaloneEngine, helpers_of

    manifest, code = bundle.manifest, Code(bundle, library)
    helpers = helpers_of(bundle) if code.parallel else None
    team = team_for(threads, helpers)
    verified_up_to = bundle.numerics().verified_up_to
    binding = Binding(manifest.inputs, manifest.dims, verified_up_to)
    engine = StandaloneEngine(code, manifest, binding, helpers, team.size)
    return Model(manifest, engine, team, verified_up_to, binding=binding)

"""A model whose inputs or outputs are strings, by steps around its library."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relaxd.contract.bundle.strings import FILENAME, Steps, Strings
from relaxd.contract.dims.tensors import TEXT, TensorSpec
from relaxd.contract.documents import read_json
from relaxd.loader.bundles.bundle import Bundle
from relaxd.loader.model import Model
from relaxd.loader.strings.program import Program
from relaxd.loader.tensors.borrowed import check_out, store

if TYPE_CHECKING:
    from relaxd.loader.engines.engine import Engine
    from relaxd.loader.engines.threads import Team
    from relaxd.loader.metrics import CallMetrics


def read_program(bundle: Bundle) -> Program:
    """The bundle's steps on strings; raises BundleError, and LoadContractError where a package that
    they need is not installed.
    """
    assert isinstance(bundle.manifest.strings, Strings)
    steps = Steps.from_json(read_json(bundle.read(FILENAME), FILENAME))
    return Program(bundle.manifest.strings, steps)


class StringModel(Model):
    """`run` takes and returns arrays of strings, as the original model; where no string is given,
    the tokens or positions that the steps would make of them may be, by the names of
    `library.inputs`. Other methods are those of the library.
    """

    def __init__(self, library: Model, program: Program) -> None:
        self._library = library
        self._program = program
        super().__init__(
            library.manifest,
            library._engine,
            library._team,
            library._verified_up_to,
            library._metrics,
            binding=library._binding,
        )

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and symbolic shape of every input; the dtype of strings is `string`."""
        return self._program.strings.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The same of every output."""
        return self._program.strings.outputs

    @property
    def library(self) -> Model:
        """The model without its steps on strings: tokens, positions and numbers alone."""
        return self._library

    def encode(self, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        """The inputs of the library; raises InputError for strings that the model does not take."""
        return self._program.encode(inputs)

    def run(
        self, inputs: Mapping[str, Any] | Sequence[Any], out: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """One inference, as `Model.run`; `out` may name outputs that are no strings."""
        if out:
            check_out(out, tuple(spec for spec in self.outputs if spec.dtype != TEXT))
        results = self._program.decode(self._run(self.encode(inputs)))
        return store(results, out) if out else results

    def _like(self, engine: "Engine", team: "Team", metrics: "CallMetrics | None") -> Model:
        return StringModel(super()._like(engine, team, metrics), self._program)

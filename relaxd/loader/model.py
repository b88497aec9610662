"""A loaded model: numpy arrays in and out, every call checked against the declared dims."""

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import STORAGE, TensorSpec
from relaxd.errors import ExecutionError, InputError
from relaxd.loader.bound_inputs import BoundInputs
from relaxd.loader.engines.engine import Engine
from relaxd.loader.engines.failures import Failed, explain
from relaxd.loader.engines.threads import team_for
from relaxd.loader.forking import GATE
from relaxd.loader.tensors import element_types
from relaxd.loader.tensors.binding import NOT_VERIFIED, Binding
from relaxd.loader.tensors.borrowed import check_out, store

if TYPE_CHECKING:
    from relaxd.contract.bundle.state import State as StateSpec
    from relaxd.loader.adapters import AdapterStacks
    from relaxd.loader.engines.engine import Watch
    from relaxd.loader.engines.threads import Team
    from relaxd.loader.metrics import CallMetrics
    from relaxd.loader.profiling import CallProfile
    from relaxd.loader.state import State


class Model:
    """A compiled model; `run` may be called from any thread.

    binding: the engine's own, where it has one, with the same `verified_up_to`.
    """

    def __init__(
        self,
        manifest: Manifest,
        engine: Engine,
        team: "Team",
        verified_up_to: Mapping[str, int] = NOT_VERIFIED,
        metrics: "CallMetrics | None" = None,
        *,
        binding: Binding | None = None,
    ) -> None:
        self.manifest = manifest
        self._metrics = metrics
        self._engine = engine
        self._process = os.getpid()
        self._team = team
        self._verified_up_to = MappingProxyType(dict(verified_up_to))
        self._binding = binding or Binding(manifest.inputs, manifest.dims, verified_up_to)
        self._input_names = [spec.name for spec in manifest.inputs]
        self._output_names = [spec.name for spec in manifest.outputs]
        self._narrow = {s.name: s.dtype for s in manifest.outputs if s.dtype in STORAGE}

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and symbolic shape of every input."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and symbolic shape of every output."""
        return self.manifest.outputs

    @property
    def library(self) -> "Model":
        """The model without its steps on strings, as its library is; itself where it has none."""
        return self

    def encode(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs of the library: a model without strings takes these."""
        return dict(inputs)

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The symbolic dims with their ranges."""
        return self.manifest.dims

    @property
    def verified_up_to(self) -> Mapping[str, int]:
        """The greatest value of each dim at which the build's outputs were compared with the
        reference's; empty where the bundle does not say.
        """
        return self._verified_up_to

    @property
    def unverified_runs(self) -> int:
        """How many calls so far had a dim above `verified_up_to`."""
        return self._binding.unverified_runs

    @property
    def threads(self) -> int:
        """The number of threads that a call computes with."""
        return self._team.size

    def session(self, threads: int | None = None) -> "Model":
        """The same model, its weights shared, with a number of threads of its own."""
        device = self.manifest.load.device != "cpu"
        with GATE:  # it may open the library of threads
            team = team_for(threads, self._team.helpers, one_at_a_time=device)
            return self._like(self._engine.session(team.size), team, self._metrics)

    def state(
        self,
        *,
        entries: int = 1,
        capacity: int | None = None,
        adapters: "AdapterStacks | None" = None,
    ) -> "State":
        """Empty caches for so many sequences of up to `capacity` tokens, by default as many as the
        bundle admits; raises InputError for a library without state. adapters: those that entries
        may have, of this model.
        """
        from relaxd.loader.state import State

        return State(self, entries, capacity, adapters)

    def adapters(self, count: int) -> "AdapterStacks":
        """Slots for so many low-rank adapters; raises AdapterError for a library that takes none
        or not as many.
        """
        from relaxd.loader.adapters import AdapterStacks

        return AdapterStacks(self, count)

    def count_calls(self, metrics: "CallMetrics") -> "Model":
        """The same model, whose calls are counted."""
        return self._like(self._engine, self._team, metrics)

    def watch_kernels(self, watch: "Watch") -> "Model | None":
        """The same model, whose calls report each kernel to `watch`: its name, and whether it
        begins or has ended. No other call is reported, and these are not counted. None for a
        library that does not report its kernels.
        """
        with GATE:
            engine = self._engine.watch_kernels(watch)
        return None if engine is None else self._like(engine, self._team, None)

    def _like(self, engine: Engine, team: "Team", metrics: "CallMetrics | None") -> "Model":
        return Model(self.manifest, engine, team, self._verified_up_to, metrics)

    def run(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        out: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One inference: arrays by input name, or a list of them in the order of `inputs`, to
        arrays by output name.

        An input is anything that lends its memory by DLPack or that `numpy.asarray` takes, of
        exactly the declared dtype; one that is contiguous, writable and aligned to 64 bytes is used
        in place. One with a default may be left out. An output owns its memory.
        out: arrays by output name, numpy's or any that lend their memory by DLPack, that receive
        the outputs they name and are returned in their place.
        Types of 8 bits and fewer that numpy lacks come as arrays of ml_dtypes, or one element a
        byte as `relaxd.contract.dims.tensors.STORAGE` says; outputs of them are ml_dtypes' where it
        is installed, else bytes.
        Raises InputError for inputs that the model does not admit, ExecutionError where the
        compiled code fails, or in a forked process that cannot use the model: one of a device, or
        one whose fork cut a call short (see `relaxd.loader.forking`).
        """
        if out:
            check_out(out, self.outputs)
        results = self._run(inputs)
        return store(results, out) if out else results

    def bind_inputs(
        self, inputs: Mapping[str, Any]
    ) -> Callable[[Mapping[str, Any]], dict[str, np.ndarray]]:
        """Calls that are given the other inputs alone: these are checked here and not again, and
        each call reads what their arrays hold then. Raises as `run` does.
        """
        if self.manifest.state is not None:
            self._check_caches(self.manifest.state, inputs)
        bound = BoundInputs(self._input_names, self._binding, self._engine, inputs)
        return lambda others: self._run(others, bound)

    def prepared(
        self, inputs: Mapping[str, Any] | Sequence[Any]
    ) -> Callable[[], Mapping[str, np.ndarray]]:
        """A call that is checked here and not again, for models whose calls take microseconds.

        Calling it computes from what the arrays of `inputs` hold then; the outputs lie where they
        lay before, until the next call. Where the library runs without a runtime, on one thread,
        with extents that the inputs decide, nothing is done but that; any other model is run as by
        `run`. A thread at a time may call it. Raises as `run` does.
        """
        with GATE:
            arrays = self._binding.arrays(inputs)
            plain = self.threads == 1 and not self._narrow and self._metrics is None
            try:
                call = self._engine.prepare_call(arrays) if plain else None
            except Failed as error:
                raise self._failure(error, arrays) from error
        if call is None:
            return lambda: self.run(inputs)
        outputs = MappingProxyType(dict(zip(self._output_names, call.outputs, strict=True)))

        def again() -> Mapping[str, np.ndarray]:
            try:
                call()
            except Failed as error:
                raise self._failure(error, arrays) from error
            return outputs

        return again

    def _failure(self, error: Exception, arrays: Sequence[Any]) -> ExecutionError:
        names = self._input_names
        shapes = {name: list(a.shape) for name, a in zip(names, arrays, strict=True)}
        message = explain(str(error), self._binding.solve(tuple(a.shape for a in arrays)))
        return ExecutionError(f"{self.manifest.name} failed: {message}", shapes=shapes)

    def _check_process(self) -> None:
        device = self.manifest.load.device
        if device != "cpu" and os.getpid() != self._process:
            raise ExecutionError(
                f"{self.manifest.name} was loaded in another process, and {device} does not "
                "survive a fork",
                hint="load the model after the fork, or start processes by `spawn`",
            )

    def profile(
        self,
        inputs: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        runs: int = 10,
    ) -> "CallProfile":
        """How long a call takes here and now, and which kernels take that time, over so many calls;
        without inputs, of drawn ones at the dims. Other calls may run meanwhile: their kernels are
        not counted.
        """
        from relaxd.loader.profiling import profile
        from relaxd.loader.samples import dim_values, draw

        if inputs is None:
            inputs = draw(
                self.manifest.inputs, dim_values(self.dims, dims or {}), 0, self.manifest.state
            )
        return profile(self, inputs, runs)

    def order_inputs(self, inputs: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
        """The inputs in the model's order, as `run` would take them; raises InputError."""
        return self._binding.arrays(inputs)

    def _run(
        self, inputs: Mapping[str, Any] | Sequence[Any], bound: BoundInputs | None = None
    ) -> dict[str, np.ndarray]:
        with GATE:
            if self._metrics is None:
                return self._computed(inputs, bound)
            with self._metrics.call(self):
                return self._computed(inputs, bound)

    def _computed(
        self, inputs: Mapping[str, Any] | Sequence[Any], bound: BoundInputs | None
    ) -> dict[str, np.ndarray]:
        self._check_process()
        arrays, dims = (bound.binding if bound else self._binding).convert(inputs)
        if bound is None and self.manifest.state is not None:
            self._check_caches(
                self.manifest.state, dict(zip(self._input_names, arrays, strict=True))
            )
        try:
            prepared = (bound or self._engine).prepare(arrays)
            outputs = self._team.call(self._engine.compute, [prepared, dims], kind=dims)
        except Exception as error:
            raise self._failure(error, bound.arrays(arrays) if bound else arrays) from error
        named = dict(zip(self._output_names, outputs, strict=True))
        for name, dtype in self._narrow.items():
            named[name] = element_types.view_as(named[name], dtype)
        return named

    def _check_caches(self, state: "StateSpec", inputs: Mapping[str, Any]) -> None:
        """Raises InputError for a cache of which the library would be given a copy, whose new rows
        were lost.
        """
        for cache in state.caches:
            array = inputs.get(cache.input)
            if array is None or _is_lendable(array):
                continue
            raise InputError(
                f"the cache {cache.input!r} is written in place: it must be a contiguous, "
                "writable array of numpy",
                hint="let Model.state keep the caches",
                input=cache.input,
            )

    def __call__(self, **inputs: Any) -> dict[str, np.ndarray]:
        """`run` with the inputs as keywords."""
        return self.run(inputs)

    def __repr__(self) -> str:
        inputs, outputs = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        return f"<relaxd.Model {self.manifest.name}: {inputs} -> {outputs}>"


def _is_lendable(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.flags.carray and array.dtype.isnative

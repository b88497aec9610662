"""Compile options: typed, frozen, unknown keys refused."""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from relaxd.contract.dims.grid import ProfileOptions
from relaxd.errors import DeclarationError, suggest

MOST_RANK = 256
"""Of adapters that a library takes."""
RANK_STEP = 8
"""Ranks are multiples of it: a vector of the narrowest unit that kernels are written for."""
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The matmuls of a layer that may have adapters, by the names that transformers gives them."""


class Flavour(StrEnum):
    """The backend: TVM's virtual machine runs the graph, or generated C that needs no runtime."""

    VM = "vm"
    STANDALONE = "standalone"


class StateForm(StrEnum):
    """The form of a KV cache: PASSED as inputs and outputs, or `LIFTED`: an in-place KV cache that
    the caller owns.
    """

    PASSED = "passed"
    LIFTED = "lifted"


class CacheForm(StrEnum):
    """The type of an in-place KV cache; FLOAT32: the model's own. INT8: quantized, with one scale
    for each token and head (`relaxd.contract.bundle.byte_rows`).
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"


class LogitsForm(StrEnum):
    """The tokens of a call whose logits are computed: all, or the last of each sequence."""

    ALL = "all"
    LAST = "last"


class WeightForm(StrEnum):
    """The type that weights are stored in; FLOAT32: the model's own."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"
    INT4 = "int4"


class Calibration(StrEnum):
    """The use of the request's samples beside verification: none; GPTQ: block-wise quantized
    weights are chosen so that outputs for the samples change least; SMOOTH: SmoothQuant scales move
    outliers from int8 activations to weights; STATIC: as SMOOTH, and activation scales come from
    the samples instead of being computed at run time.
    """

    NONE = "none"
    GPTQ = "gptq"
    SMOOTH = "smooth"
    STATIC = "static"


class Precision(StrEnum):
    """The type that matmuls and convolutions compute in; accumulators are float32 or int32.

    INT8: with block-wise quantized weights, activations are quantized block by block; otherwise,
    constant weights are quantized per column, and activations per row or image.
    """

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"


class PrecisionOver(StrEnum):
    """The reaction to a quantization error above the limit: fail, or keep the most sensitive layers
    in float32.
    """

    FAIL = "fail"
    KEEP = "keep"


@dataclass(frozen=True)
class CompileOptions:
    """The settings of a request beyond shapes and targets; every field but `dump` is part of the
    action key.

    verify: compare with the reference runtime before publishing.
    profile: measure latency, memory and time per kernel; with a grid also at its points, to which a
    cost model is fitted.
    rtol, atol: the tolerances of `verify`; None takes those of the output's dtype.
    seed: of the inputs that verify and profile draw.
    dump: keep the module after every phase of the compiler, beside the bundle.
    `flavour`: the backend; None takes the target's own.
    state: the form of the KV cache of a language model. cache: the type of an in-place KV cache of
    float32; cache_error: as weights_error, for the cache.
    logits: the tokens whose logits the output `logits` of a language model has.
    weights: the type of constant weights of matmuls and of embedding tables; weights_error: the
    greatest error of any output against the model's own weights at which a build is published, None
    for any. calibration: how samples change quantized weights and activation scales.
    precision: the type that matmuls and convolutions with constant weights multiply;
    precision_error: as weights_error, for quantized operands; precision_over: the reaction to a
    greater error.
    lora_rank: the greatest rank of adapters that the library of a decoder takes beside its weights,
    0 for a library without adapters; lora_targets: the matmuls that may have some, as in
    `q_proj,v_proj`, None for those of all layers.
    embed_weights: put the weights into the library; None takes what the target is for: yes for
    micro-controllers, whose programs have no files.
    """

    verify: bool = True
    profile: bool | ProfileOptions = True
    rtol: float | None = None
    atol: float | None = None
    seed: int = 0
    dump: bool = False
    flavour: Flavour | None = None
    state: StateForm = StateForm.PASSED
    cache: CacheForm = CacheForm.FLOAT32
    cache_error: float | None = None
    logits: LogitsForm = LogitsForm.ALL
    weights: WeightForm = WeightForm.FLOAT32
    weights_error: float | None = None
    calibration: Calibration = Calibration.NONE
    precision: Precision = Precision.FLOAT32
    precision_error: float | None = None
    precision_over: PrecisionOver = PrecisionOver.FAIL
    lora_rank: int = 0
    lora_targets: str | None = None
    embed_weights: bool | None = None

    @property
    def lora_modules(self) -> tuple[str, ...]:
        """The matmuls of a layer that may have adapters."""
        names = {name.strip() for name in (self.lora_targets or ",".join(MODULES)).split(",")}
        return tuple(name for name in MODULES if name in names)

    def __post_init__(self) -> None:
        object.__setattr__(self, "profile", ProfileOptions.read(self.profile))
        self._choose("flavour", Flavour, optional=True)
        self._choose("state", StateForm)
        self._choose("cache", CacheForm)
        self._choose("logits", LogitsForm)
        self._choose("weights", WeightForm)
        self._choose("calibration", Calibration)
        self._choose("precision", Precision)
        self._choose("precision_over", PrecisionOver)
        for name, kinds, what in _KINDS:
            value = getattr(self, name)
            if type(value) not in kinds:
                raise DeclarationError(
                    f"option {name!r} must be {what}, not {value!r}", field=f"options.{name}"
                )
            if name in _LIMITS and value is not None and not 0 <= value < float("inf"):
                raise DeclarationError(
                    f"option {name!r} must be a number of at least 0, not {value!r}",
                    field=f"options.{name}",
                )
        self._limit("cache", "quantized KV caches")
        self._limit("weights", "quantized weights")
        self._limit("precision", "quantized operands")
        if self.precision_over is PrecisionOver.KEEP and self.precision_error is None:
            raise DeclarationError(
                "precision_over=keep keeps layers in float32 until the error is within "
                "precision_error, and there is none",
                field="options.precision_over",
                hint="set precision_error, or leave precision_over out",
            )
        if self.precision is not Precision.FLOAT32 and self.weights is not WeightForm.FLOAT32:
            raise DeclarationError(
                f"weights of {self.weights} are multiplied in float32, not in {self.precision}",
                field="options.precision",
                hint="set one of precision and weights to float32: precision=bfloat16 stores "
                "weights as bfloat16, precision=int8 is for weights that the model has in blocks",
            )
        if self.cache is not CacheForm.FLOAT32 and self.state is not StateForm.LIFTED:
            raise DeclarationError(
                f"cache={self.cache} is for caches that the library keeps, which are passed here",
                field="options.cache",
                hint="set `state` to `lifted`, or leave it out",
            )
        blocks = WeightForm.INT8, WeightForm.INT4
        operands = Calibration.SMOOTH, Calibration.STATIC
        if self.calibration in operands and self.precision is not Precision.INT8:
            raise DeclarationError(
                f"calibration={self.calibration} is for precision=int8, not for {self.precision}",
                field="options.calibration",
                hint="set precision to int8, or leave it out",
            )
        if self.calibration is Calibration.GPTQ and self.weights not in blocks:
            raise DeclarationError(
                f"calibration={self.calibration} is for weights of int8 and int4, not of "
                f"{self.weights}",
                field="options.calibration",
                hint="set weights to int4 or int8, or leave it out",
            )

        self._check_adapters()

    def _check_adapters(self) -> None:
        """Raises DeclarationError for adapters that no library could take."""
        if not 0 <= self.lora_rank <= MOST_RANK or self.lora_rank % RANK_STEP:
            raise DeclarationError(
                f"the rank of adapters cannot be {self.lora_rank}",
                field="options.lora_rank",
                hint=f"it must be a multiple of {RANK_STEP} up to {MOST_RANK}: adapters of smaller "
                "ranks fit too",
            )
        if self.lora_rank and self.state is not StateForm.LIFTED:
            raise DeclarationError(
                "adapters are for language models with in-place KV caches",
                field="options.lora_rank",
                hint="set `state` to `lifted`",
            )
        if self.lora_targets is None:
            return
        unknown = {name.strip() for name in self.lora_targets.split(",")} - {*MODULES}
        if unknown or not self.lora_rank:
            what = f"{min(unknown)!r} has no adapters" if unknown else "there are no adapters"
            raise DeclarationError(
                what,
                field="options.lora_targets",
                hint=f"name some of {', '.join(MODULES)}, and set lora_rank",
            )

    def _limit(self, name: str, what: str) -> None:
        """Raises DeclarationError for a limit of an error that nothing will find."""
        limit = f"{name}_error"
        if getattr(self, limit) is not None and (
            not self.verify or getattr(self, name) == "float32"
        ):
            raise DeclarationError(
                f"option {limit!r} limits the error of {what}, which only verification measures",
                field=f"options.{limit}",
                hint=f"leave it out, or set {name} to another form than float32, and verify to "
                "true",
            )

    def _choose(self, name: str, kind: type[StrEnum], *, optional: bool = False) -> None:
        value = getattr(self, name)
        if optional and value is None:
            return
        if value not in list(kind):
            known = " or ".join(repr(str(member)) for member in kind)
            raise DeclarationError(
                f"option {name!r} must be {known}, not {value!r}", field=f"options.{name}"
            )
        object.__setattr__(self, name, kind(value))

    def to_json(self) -> dict[str, Any]:
        """Every field, defaults too: an identity must not depend on which were left out."""
        profile = self.profile if isinstance(self.profile, bool) else self.profile.to_json()
        return {**{name: getattr(self, name) for name in _FIELDS}, "profile": profile}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "CompileOptions":
        """From the wire; raises DeclarationError naming an unknown key."""
        for key in document:
            if key not in _FIELDS:
                raise DeclarationError(
                    f"unknown option {key!r}",
                    field=f"options.{key}",
                    hint=suggest(key, _FIELDS, f"known options: {', '.join(sorted(_FIELDS))}"),
                )
        return cls(**document)


_FIELDS = tuple(field.name for field in fields(CompileOptions))

_KINDS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("verify", (bool,), "true or false"),
    ("rtol", (float, int, type(None)), "a number"),
    ("atol", (float, int, type(None)), "a number"),
    ("cache_error", (float, int, type(None)), "a number"),
    ("weights_error", (float, int, type(None)), "a number"),
    ("precision_error", (float, int, type(None)), "a number"),
    ("seed", (int,), "an integer"),
    ("lora_rank", (int,), "an integer"),
    ("lora_targets", (str, type(None)), "names of matmuls, as in q_proj,v_proj"),
    ("dump", (bool,), "true or false"),
    ("embed_weights", (bool, type(None)), "true or false"),
)
_LIMITS = ("rtol", "atol", "cache_error", "weights_error", "precision_error")

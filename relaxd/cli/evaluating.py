"""`relaxd accuracy`: a metric of a bundle on labelled samples."""

import dataclasses
import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from relaxd.cli import arrays
from relaxd.cli.command import Json
from relaxd.cli.console import Exit, print_json, stderr, stdout
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.errors import DeclarationError, suggest
from relaxd.reports import metrics
from relaxd.reports.metrics import LOWER_IS_BETTER, Custom, Function, Metric

_BUILT_IN = ("top-1", "f1", "wer", "perplexity")


@dataclass(frozen=True)
class Evaluation:
    """Labelled samples and what is measured on them. samples: an .npz with a row a sample in each
    array; labels: the name of one of its arrays, or a .npy, or a .txt with a line a sample; metric:
    top-1, f1, wer, perplexity, or FILE.py:FUNCTION; output: by default the first. min, max: fail
    beyond it; loss: fail if it is by more worse than the baseline's.
    """

    samples: Path
    labels: str = "labels"
    metric: str = "top-1"
    output: str | None = None
    batch: int = 1
    vocabulary: Path | None = None
    blank: int = 0
    min: float | None = None
    max: float | None = None
    loss: float | None = None

    def __post_init__(self) -> None:
        if ":" not in self.metric and self.metric not in _BUILT_IN:
            known = f"one of {', '.join(_BUILT_IN)}, or FILE.py:FUNCTION"
            raise DeclarationError(
                f"unknown metric {self.metric!r}",
                field="metric",
                hint=suggest(self.metric, _BUILT_IN, known),
            )
        if self.batch < 1:
            raise DeclarationError("batch must be 1 or more", field="batch", hint="as in batch = 8")

    def arguments(self) -> list[str]:
        """The options of `relaxd accuracy` that measure this, without limits."""
        options: dict[str, object] = {
            "samples": self.samples,
            "labels": self.labels,
            "metric": self.metric,
        }
        options |= {"output": self.output, "batch": self.batch, "vocabulary": self.vocabulary}
        options |= {"blank": self.blank}
        return [f"--{name}={value}" for name, value in options.items() if value is not None]

    def failure(self, value: float, baseline: float | None = None) -> str | None:
        """Why the value fails, None if it does not; NaN fails where anything is asked."""
        if self.min is not None and not value >= self.min:
            return f"{value:.6g} is below {self.min:g}"
        if self.max is not None and not value <= self.max:
            return f"{value:.6g} is above {self.max:g}"
        if self.loss is None or baseline is None:
            return None
        lower = self.metric in LOWER_IS_BETTER or (self.max is not None and self.min is None)
        worse = value - baseline if lower else baseline - value
        return None if worse <= self.loss else f"{value:.6g}, the baseline has {baseline:.6g}"


def read_evaluation(entry: Any, folder: Path) -> Evaluation:
    """The table `accuracy` of a model of relaxd.toml, whose paths begin at the folder; raises
    DeclarationError.
    """
    if not isinstance(entry, dict) or "samples" not in entry:
        raise _wrong("accuracy has no samples", "samples")
    fields = {one.name: str(one.type) for one in dataclasses.fields(Evaluation)}
    for name, value in entry.items():
        if name not in fields:
            hint = suggest(name, fields, f"known keys: {', '.join(fields)}")
            raise DeclarationError(
                f"accuracy has the unknown key {name!r}", field=f"accuracy.{name}", hint=hint
            )
        if not _fits(value, fields[name]):
            raise _wrong(f"{name} of accuracy cannot be {value!r}", name)
    values = {**entry, "samples": folder / entry["samples"]}
    if "vocabulary" in entry:
        values["vocabulary"] = folder / entry["vocabulary"]
    if Path(str(entry.get("labels", ""))).suffix in (".npy", ".txt"):
        values["labels"] = str(folder / entry["labels"])
    file, colon, function = str(entry.get("metric", "")).partition(":")
    if colon:
        values["metric"] = f"{folder / file}:{function}"
    return Evaluation(**values)


def _fits(value: Any, type_: str) -> bool:
    if isinstance(value, bool):
        return False
    if "float" in type_:
        return isinstance(value, int | float) and math.isfinite(value)
    if "int" in type_:
        return isinstance(value, int) and value >= 0
    return isinstance(value, str)


def _wrong(message: str, name: str) -> DeclarationError:
    example = 'accuracy = { samples = "eval.npz", labels = "label", metric = "top-1", min = 0.76 }'
    return DeclarationError(message, field=f"accuracy.{name}", hint=f"as in {example}")


def evaluate(bundle: Path, evaluation: Evaluation) -> tuple[float, int]:
    """The metric and the number of samples; raises DeclarationError for files that cannot be used,
    MetricError, and as `relaxd.load` and its calls do.
    """
    from relaxd.loader.opening import load

    samples = arrays.read_all(evaluation.samples)
    labels = _labels(evaluation, samples)
    model = load(bundle)
    specs = [spec for spec in model.inputs if spec.name in samples or spec.default is None]
    inputs = {spec.name: _rows(samples, spec, len(labels), evaluation.samples) for spec in specs}
    output = evaluation.output or model.outputs[0].name
    if output not in (known := [spec.name for spec in model.outputs]):
        hint = suggest(output, known, f"its outputs: {', '.join(known)}")
        raise DeclarationError(f"the bundle has no output {output!r}", field="output", hint=hint)
    metric = _metric(evaluation, output)
    for first in range(0, len(labels), evaluation.batch):
        part = slice(first, first + evaluation.batch)
        rows = {name: array[part] if array.ndim else array for name, array in inputs.items()}
        metric.add(model.run(rows), labels[part])
    return metric.value(), len(labels)


def _labels(evaluation: Evaluation, samples: dict[str, np.ndarray]) -> np.ndarray:
    if evaluation.labels in samples:
        labels = samples[evaluation.labels]
    elif (path := Path(evaluation.labels)).suffix == ".npy":
        labels = arrays.read(path)
    elif path.suffix == ".txt":
        labels = np.array(list(_lines(path)))
    else:
        hint = suggest(evaluation.labels, samples, f"it has {', '.join(samples) or 'no arrays'}")
        raise DeclarationError(
            f"{evaluation.samples} has no labels {evaluation.labels!r}", field="labels", hint=hint
        )
    if not labels.ndim or not len(labels):
        raise DeclarationError("there are no labels", field="labels", hint="give a row a sample")
    return labels.astype(str) if labels.dtype.kind == "S" else labels


def _rows(samples: dict[str, np.ndarray], spec: TensorSpec, count: int, path: Path) -> np.ndarray:
    """The input's array: a row a sample, or the number that is the same for all."""
    if spec.name not in samples:
        hint = suggest(spec.name, samples, f"it has {', '.join(samples)}")
        raise DeclarationError(f"{path} has no input {spec.name!r}", field="samples", hint=hint)
    array = samples[spec.name]
    if array.shape[:1] != ((count,) if spec.shape else ()):
        raise DeclarationError(
            f"input {spec.name!r} of {path} has shape {list(array.shape)}, and there are {count} "
            "labels",
            field="samples",
            hint="give a row a sample in each array, and one number for an input without axes",
        )
    return array


def _metric(evaluation: Evaluation, output: str) -> Metric:
    match evaluation.metric:
        case "top-1":
            return metrics.Top1(output)
        case "f1":
            return metrics.MacroF1(output)
        case "perplexity":
            return metrics.Perplexity(output)
        case "wer":
            tokens = tuple(_lines(evaluation.vocabulary)) if evaluation.vocabulary else ()
            return metrics.WordErrorRate(output, tokens, evaluation.blank)
    return Custom(_function(evaluation.metric))


def _lines(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(
            f"cannot read {path}: {error}", field="accuracy", hint="give a text file in UTF-8"
        ) from error
    yield from text.removesuffix("\n").split("\n") if text else ()


def _function(text: str) -> Function:
    file, _, name = text.rpartition(":")
    hint = "as in metrics.py:exact_match, a function of (outputs, labels) that returns a number"
    spec = importlib.util.spec_from_file_location("relaxd_user_metric", file)
    if spec is None or spec.loader is None or not Path(file).is_file():
        raise DeclarationError(f"{file!r} is not a Python file", field="metric", hint=hint)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # it is the user's code
        raise DeclarationError(
            f"{file} raised {type(error).__name__}: {error}", field="metric", hint=hint
        ) from error
    if not callable(function := getattr(module, name, None)):
        raise DeclarationError(f"{file} has no function {name!r}", field="metric", hint=hint)
    return function  # type: ignore[no-any-return]


def accuracy_command(
    bundle: Annotated[Path, typer.Argument(help="A folder or a tar.", show_default=False)],
    samples: Annotated[
        Path,
        typer.Option(metavar="NPZ", help="Inputs by name, one row per sample.", show_default=False),
    ],
    labels: Annotated[
        str,
        typer.Option(metavar="NAME|FILE", help="The labels: an array of NPZ, a .npy, or a .txt."),
    ] = "labels",
    metric: Annotated[
        str, typer.Option(help="top-1, f1, wer, perplexity, or FILE.py:FUNCTION.")
    ] = "top-1",
    output: Annotated[
        str | None, typer.Option("--output", metavar="NAME", show_default="the first")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Samples per call.")] = 1,
    vocabulary: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="For wer: a file of one token per line.", show_default=False
        ),
    ] = None,
    blank: Annotated[int, typer.Option(min=0, help="For wer: the number of the CTC blank.")] = 0,
    minimum: Annotated[
        float | None,
        typer.Option("--min", help="Exit with 4 if the metric is below.", show_default=False),
    ] = None,
    maximum: Annotated[
        float | None,
        typer.Option("--max", help="Exit with 4 if the metric is above.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Run BUNDLE on labelled samples and print a metric.

    Example: [bold]relaxd accuracy out --samples eval.npz --labels label --min 0.76[/]
    """
    asked = Evaluation(
        samples, labels, metric, output, batch, vocabulary, blank, min=minimum, max=maximum
    )
    value, count = evaluate(bundle, asked)
    failure = asked.failure(value)
    if json:
        shown = value if math.isfinite(value) else None
        document = {"metric": metric, "value": shown, "samples": count}
        print_json({**document, "failed": failure is not None})
    else:
        stdout().print(f"{metric}: {value:.6g} ({count} samples)", markup=False)
    if failure:
        stderr().print(f"[bold red]regression:[/] {failure}")
        raise typer.Exit(Exit.REGRESSED)

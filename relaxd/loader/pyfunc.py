"""The loader that an MLflow model of `relaxd package --as mlflow` names: MLflow calls
`_load_pyfunc` and then `predict`.

https://mlflow.org/docs/latest/python_api/mlflow.pyfunc.html
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from relaxd.contract.dims.tensors import TEXT
from relaxd.errors import InputError
from relaxd.loader.model import Model
from relaxd.loader.opening import load


class BundleModel:
    """A bundle with MLflow's `predict`."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def predict(
        self, model_input: Any, params: Mapping[str, Any] | None = None
    ) -> dict[str, np.ndarray]:
        """The outputs by name; model_input: arrays by name, a table of pandas with a column for
        each input and a row a sample, or one array for a model of one input. Raises InputError.
        """
        if hasattr(model_input, "columns"):
            dtypes = {s.name: "O" if s.dtype == TEXT else s.dtype for s in self.model.inputs}
            columns = [name for name in model_input.columns if name in dtypes]
            model_input = {
                name: np.array(model_input[name].tolist(), dtypes[name]) for name in columns
            }
        elif not isinstance(model_input, Mapping):
            if len(self.model.inputs) != 1:
                names = ", ".join(spec.name for spec in self.model.inputs)
                raise InputError("an array has no name", hint=f"give arrays by name: {names}")
            model_input = {self.model.inputs[0].name: np.asarray(model_input)}
        return self.model.run(dict(model_input))


def _load_pyfunc(data_path: str) -> BundleModel:
    return BundleModel(load(data_path))

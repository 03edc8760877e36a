"""Keras models as ONNX, by Keras's own export."""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.encode.scores import without_head
from verifolio.errors import InputError
from verifolio.plugin.exporter import Array, Export, Exporter

from .quiet import quiet


class KerasModel(Exporter):
    """A keras.Model of Keras 3, on any of its backends."""

    name: ClassVar[str] = "keras"
    suffixes: ClassVar[tuple[str, ...]] = (".keras",)

    @classmethod
    def available(cls) -> str | None:
        return None if find_spec("keras") else "needs the package keras (3 or later): pip install keras"

    @classmethod
    def accepts(cls, model: object) -> bool:
        keras = sys.modules.get("keras")
        kind = getattr(keras, "Model", None)
        return kind is not None and isinstance(model, kind)

    def read(self, path: Path) -> object:
        import keras

        try:
            return keras.saving.load_model(path, safe_mode=True)
        except Exception as error:  # a stranger's file may raise anything
            text = " ".join(str(error).split())[:200]
            raise InputError(str(path), "a Keras model without code of its own", text) from None

    def export(self, model: Any, shape: tuple[int, ...]) -> Export:
        import keras

        name = str(model.name)
        with tempfile.TemporaryDirectory(prefix="verifolio-") as folder:
            path = Path(folder) / "model.onnx"
            signature = [keras.InputSpec(shape=(1, *shape), dtype="float32")]
            try:
                with quiet():
                    model.export(path, format="onnx", input_signature=signature, verbose=False)
            except Exception as error:  # missing packages of the backend, layers without an ONNX form
                text = " ".join(str(error).split())[:300]
                remedy = "install what it names, or export the model to ONNX yourself and give the file"
                raise InputError(
                    f"model {name}", "a Keras model that exports to ONNX", text, remedy
                ) from None
            from verifolio.onnx_import.external import with_external_data

            data, cut = without_head(with_external_data(path, path.read_bytes()))

        def outputs(x: Array) -> Array:
            return np.asarray(model.predict(np.asarray(x, np.float32), verbose=0), np.float64)

        def predict(x: Array) -> NDArray[np.int64]:
            found = outputs(x)
            return np.asarray(found.argmax(axis=1) if found.shape[1] > 1 else found[:, 0] > 0.5, np.int64)

        return Export(data, name, None, predict) if cut else Export(data, name, outputs)

"""Formats of model files and of input files; imports no library that computes with them.

A request that is refused needs neither pandas nor the library of its model.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal, get_args

from hyperplane.objectstore.locations import File

DataFormat = Literal["json", "csv", "parquet", "tf-record"]
DATA_FORMATS: tuple[str, ...] = get_args(DataFormat)
_FORMATS_OF_SUFFIXES = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet",
    ".tfrecord": "tf-record", ".tfrecords": "tf-record",
}  # fmt: skip
#: Suffix of the file of a model -> framework that loads it.
FRAMEWORKS = {
    ".skops": "scikit-learn",
    ".joblib": "scikit-learn",
    ".pkl": "scikit-learn",
    ".json": "xgboost",
    ".ubj": "xgboost",
    ".keras": "keras",
    ".savedmodel": "tensorflow",
    ".pt2": "torch",
}
#: Suffix of a file whose load can run code of its author -> another format, for messages.
UNSAFE_SUFFIXES = {
    ".joblib": "or save the model as .skops",
    ".pkl": "or save the model as .skops",
    ".savedmodel": "or save a model of Keras as .keras",
    ".pt2": "",
}
#: Suffix of a file that cannot be loaded -> what to do instead.
ADVICE = {
    **dict.fromkeys(
        (".pt", ".pth"),
        "neither weights nor TorchScript are read: build the module from its class, and export it "
        "with torch.export.save as .pt2",
    ),
    **dict.fromkeys((".h5", ".hdf5"), "save the model with Keras 3 as .keras"),
    ".pb": "give the folder of the SavedModel",
}
#: Framework -> packages whose versions a registry records.
PACKAGES = {
    "scikit-learn": ("scikit-learn", "numpy", "scipy", "skops", "joblib"),
    "xgboost": ("xgboost", "xgboost-cpu", "numpy", "scipy"),
    "keras": ("keras", "tensorflow", "tensorflow-cpu", "numpy"),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "keras", "numpy"),
    "torch": ("torch", "numpy"),
}


def format_of_file(file: File) -> str:
    """Return the format of a file by its suffix, before that of its compression; or empty."""
    path = PurePosixPath(file.path)
    suffix = PurePosixPath(path.stem).suffix if file.compression else path.suffix
    return _FORMATS_OF_SUFFIXES.get(suffix.lower(), "")

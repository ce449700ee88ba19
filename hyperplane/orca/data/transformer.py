"""Orca's module of the transformers of columns."""

import numpy as np

from hyperplane.ml.shards.transformers import (
    MinMaxScaler,
    StandardScaler,
    StringIndex,
    StringIndexer,
)
from hyperplane.orca.context import OrcaContext

# Programs get OrcaContext and np from ``import *`` of Orca's module.
__all__ = ["MinMaxScaler", "OrcaContext", "StandardScaler", "StringIndex", "StringIndexer", "np"]

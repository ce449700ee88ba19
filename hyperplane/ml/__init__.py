"""Machine learning on the cluster: scikit-learn, dask-ml, hyper-parameter search."""

import lazy_loader

from hyperplane.ml.dask_ml_patches import apply_patches

apply_patches()  # when dask-ml is imported, which this does not do

# Imported on first use: they load scikit-learn, Optuna or pandas.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

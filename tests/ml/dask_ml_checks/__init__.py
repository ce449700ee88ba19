"""One small computation with each public part of dask-ml, compared with scikit-learn."""

from ml.dask_ml_checks import metrics, models, preprocessing, selection, wrappers
from ml.dask_ml_checks.check import FAULTS as FAULTS
from ml.dask_ml_checks.check import Check
from ml.dask_ml_checks.check import find_failures as find_failures

CHECKS: dict[str, Check] = {
    **preprocessing.CHECKS,
    **selection.CHECKS,
    **models.CHECKS,
    **wrappers.CHECKS,
    **metrics.CHECKS,
}

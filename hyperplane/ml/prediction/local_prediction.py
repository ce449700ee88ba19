"""Predictions of JSON lines in this process, for ``hyperplane predict``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hyperplane.core.argument_checks import find_count_faults
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.ml.prediction.model_files import load_found, load_model, locate_model

if TYPE_CHECKING:
    from hyperplane.ml.prediction.rows import Predictions


def predict_instances(
    model: Any,
    lines: Iterable[bytes],
    *,
    batch_size: int = 64,
    columns: Sequence[str] | None = None,
    trusted: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    other_faults: Sequence[Fault] = (),
) -> Predictions:
    """Predict lines of JSON in this process.

    Raises
    ------
    RequestError
        With every fault of the call, and ``other_faults``.
    """
    faults = [*other_faults, *find_count_faults("batch_size", batch_size)]
    try:
        located = locate_model(model, trusted=trusted, storage_options=storage_options)
    except RequestError as error:
        check([*faults, *error.faults])
        raise
    check(faults)
    file = load_found(located)
    from hyperplane.ml.prediction.instances import READ_ROWS, parse_lines  # they import pandas
    from hyperplane.ml.prediction.rows import Predictions, predict_rows

    predictor, _ = load_model(file)
    result = Predictions()
    for rows in parse_lines(lines, batch_size * -(-READ_ROWS // batch_size)):
        found = predict_rows(predictor, rows, batch_size, columns)
        result.values += found.values
        result.errors += found.errors
    return result

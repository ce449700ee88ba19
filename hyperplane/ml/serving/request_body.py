"""The documented form of requests: ``{"instances": [...]}``."""

from __future__ import annotations

from typing import Any

from hyperplane.ml.prediction.json_values import NumberOutOfRange, parse_json
from hyperplane.ml.prediction.rows import Predictions

_SIGNATURE = "serving_default"
#: Refused instances that a response describes.
MAX_ERRORS = 10


class InvalidBody(ValueError):
    """The content of a request, or of a file of one, has not the documented form."""


def parse_body(body: bytes, max_instances: int | None = None) -> list[Any]:
    """Return the instances of a request.

    Raises
    ------
    InvalidBody
        With every fault of the request.

    Examples
    --------
    >>> parse_body(b'{"instances": [[1, 2]]}')
    [[1, 2]]
    """
    try:
        document = parse_json(body.decode())
    except NumberOutOfRange as error:
        raise InvalidBody(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise InvalidBody(f"the body is not JSON: {error}"[:300]) from error
    if not isinstance(document, dict):
        raise InvalidBody('expected an object with "instances", a list')
    faults = []
    instances: Any = document.get("instances")
    if not isinstance(instances, list) or not instances:
        faults.append('expected "instances", a list with at least one instance')
    elif max_instances is not None and len(instances) > max_instances:
        faults.append(f"expected at most {max_instances:,} instances, found {len(instances):,}")
    if document.get("signature_name", _SIGNATURE) != _SIGNATURE:
        faults.append(f'expected "{_SIGNATURE}" as "signature_name", or none')
    for name in document:
        if name not in ("instances", "signature_name"):
            faults.append(f"unknown key {name[:80]!r}; expected instances")
    if faults:
        raise InvalidBody("; ".join(faults))
    found: list[Any] = instances
    return found


def make_response(predictions: Predictions) -> dict[str, Any]:
    """Return the content of a response: all predictions, or an error with the refused instances.

    Examples
    --------
    >>> make_response(Predictions([(0, 1.5), (1, 2.0)]))
    {'predictions': [1.5, 2.0]}
    >>> make_response(Predictions([(0, 1.5)], [(1, "ValueError: no")]))
    {'error': 'instance 1: ValueError: no'}
    """
    errors = predictions.errors
    if not errors:
        return {"predictions": [value for _, value in predictions.values]}
    shown = [f"instance {number}: {reason}" for number, reason in errors[:MAX_ERRORS]]
    if len(errors) > MAX_ERRORS:
        shown.append(f"and at least {len(errors) - MAX_ERRORS:,} more")
    return {"error": "; ".join(shown)}

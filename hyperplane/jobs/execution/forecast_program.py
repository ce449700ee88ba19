"""``python forecast_program.py REQUEST RESULT``: forecast the memory that a step needs.

It runs in the environment and the working folder of the step, because it runs the program of the
step's collection. The files are JSON: the arguments of ``forecast_step``, and a ``StepForecast``,
in which the secrets of the step are masked.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":  # an environment of requirements does not have editable packages
    sys.path.append(str(Path(__file__).parents[3]))

from hyperplane.core.errors import RequestError
from hyperplane.jobs.execution.redaction import redact_text
from hyperplane.jobs.execution.step_forecast import StepForecast

#: Prefix of the variables of secrets: the module that defines it imports too much.
_SECRET_PREFIX = "HYPERPLANE_CUSTOM_SECRET_KEY_"  # noqa: S105 - a name, and no secret


def main(request: Path, result: Path) -> None:
    """Forecast what the request names; a failure is a result, too."""
    arguments = json.loads(request.read_text())
    target, failure = arguments["target"], ""
    # Before the program runs, which may remove the variables.
    secrets = [text for name, text in os.environ.items() if name.startswith(_SECRET_PREFIX)]
    try:
        from hyperplane.forecasts.step_memory import forecast_step  # Dask may be missing

        found = StepForecast.of(target, forecast_step(**arguments))
    except RequestError as error:
        first = error.faults[0]
        failure = first.advice if first.where == "forecast" else str(first)
        if first.where == "target":  # which the message names
            failure = "; ".join(filter(None, (f"expected {first.allowed}", first.advice)))
    except Exception as error:  # noqa: BLE001 - the step runs in any case
        failure = f"{type(error).__name__}: {error}"
    if failure:  # masked as a whole: it may be cut within a secret
        found = StepForecast(target, failure=redact_text(failure, secrets))
    draft = result.with_suffix(".draft")
    draft.write_text(found.to_json())
    draft.replace(result)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

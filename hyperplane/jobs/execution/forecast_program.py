"""``python forecast_program.py REQUEST RESULT``: forecast the memory that a step needs.

It runs in the environment and the working folder of the step, because it runs the program of the
step's collection. The files are JSON: the arguments of ``forecast_step``, and a ``StepForecast``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":  # an environment of requirements does not have editable packages
    sys.path.append(str(Path(__file__).parents[3]))

from hyperplane.core.errors import RequestError
from hyperplane.jobs.execution.step_forecast import StepForecast


def main(request: Path, result: Path) -> None:
    """Forecast what the request names; a failure is a result, too."""
    arguments = json.loads(request.read_text())
    try:
        from hyperplane.forecasts.step_memory import forecast_step  # Dask may be missing

        found = StepForecast.of(arguments["target"], forecast_step(**arguments))
    except RequestError as error:
        first = error.faults[0]
        text = first.advice if first.where == "forecast" else f"expected {first.allowed}"
        found = StepForecast(arguments["target"], failure=text)
    except Exception as error:  # noqa: BLE001 - the step runs in any case
        text = f"{type(error).__name__}: {error}"
        found = StepForecast(arguments["target"], failure=text)
    draft = result.with_suffix(".draft")
    draft.write_text(found.to_json())
    draft.replace(result)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""Write the JSON Schema of pipeline files for editors: ``python -m scripts.schema``.

A test compares the file with the code.
"""

from __future__ import annotations

import json
from pathlib import Path

from hyperplane.jobs.definition.schema import json_schema

FILE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "pipeline.schema.json"


def text() -> str:
    """Return the content of the file."""
    return json.dumps(json_schema(), indent=2) + "\n"


def main() -> None:
    """Write the file."""
    FILE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()

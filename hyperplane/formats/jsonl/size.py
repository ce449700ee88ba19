"""Parse a sample of JSON lines or of a JSON array, to estimate the size of the file."""

from __future__ import annotations

import io
import json
import re
from contextlib import suppress
from typing import Any


def parse_sample(sample: io.BytesIO) -> Any:
    """Return a pandas dataframe of the first lines, or of the first items of an array."""
    import pandas as pd

    text = sample.getvalue().decode(errors="ignore").lstrip()
    if text.startswith("["):
        return pd.read_json(io.StringIO(f"[{text[1 : _end_of_items(text)]}]"))
    return pd.read_json(sample, lines=True)


def _end_of_items(text: str) -> int:
    """End of the last complete item of a JSON array; the sample may stop inside the next."""
    decode, between, end = json.JSONDecoder().raw_decode, re.compile(r"[\s,]*"), 1
    with suppress(ValueError):
        while found := between.match(text, end):
            _, end = decode(text, found.end())
    return end

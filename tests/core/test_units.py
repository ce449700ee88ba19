"""Conversion of memory sizes and durations."""

import numpy as np
import pytest
from dask.utils import parse_timedelta
from hypothesis import given
from hypothesis import strategies as st

from hyperplane.core.units import (
    UNITS_OF_SIZE,
    advise_on_size,
    bytes_to_gb,
    format_bytes,
    format_duration,
    format_number,
    gb_to_bytes,
    in_seconds,
    parse_bytes,
    parse_seconds,
    plural,
    to_dask_duration,
    whole_number,
)

QUANTITIES = {
    "0": 0,
    "17": 17,
    "17B": 17,
    "1kB": 1000,
    "1k": 1000,
    "1KiB": 1024,
    "100MB": 100_000_000,
    "100_000 MB": 100_000_000_000,
    "1,000 MB": 1_000_000_000,
    "1,500GB": 1500 * 10**9,
    "1,234,567": 1_234_567,
    "12,500.5 kB": 12_500_500,
    "4Gi": 4 * 2**30,
    "4GiB": 4 * 2**30,
    "4 gib": 4 * 2**30,
    "100GB": 100 * 10**9,
    "100gb": 100 * 10**9,
    "100 G": 100 * 10**9,
    "1.5 TB": 1_500_000_000_000,
    "1.5Ti": 3 * 2**39,
    ".5GB": 500_000_000,
    "1.GB": 1_000_000_000,
    "1e3GB": 10**12,
    "1e3 GB": 10**12,
    "2E-3GB": 2_000_000,
    "1PB": 10**15,
    "1Pi": 2**50,
    "  2.4 GB  ": 2_400_000_000,
    "0.1GB": 100_000_000,
}

NOT_QUANTITIES = [
    "",
    " ",
    "GB",
    "-1GB",
    "+1GB",
    "1 XB",
    "1GBs",
    "1 G B",
    "1EB",
    "1..5GB",
    "1.5.5",
    "e3GB",
    "_1GB",
    "nan",
    "inf",
    "nan GB",
    "infGB",
    "1e999",
    "1e300PB",
    "ten GB",
    "1GB 2GB",
    "0x10",
    "٣GB",
    "5,5GB",
    "0,5 GB",
    "0,500GB",
    "1,23,456",
    "1234,567GB",
    "1,2345GB",
    "1,GB",
    ",5GB",
    "1_000,000",
]

ADVICE = {
    "5,5GB": "write 5.5GB",
    "0,5 GB": "write 0.5 GB",
    "0,500GB": "write 0.500GB",
    ",5GB": "write 0.5GB",
    "2,4": "write 2.4",
    "1.234,5 MB": "write 1234.5 MB",
    "1,5e3GB": "write 1.5e3GB",
    "1,23,456": "write the number without commas",
    "1,GB": "write the number without commas",
    "1EB": f"write one of the units {UNITS_OF_SIZE}",
    "100XB": f"write one of the units {UNITS_OF_SIZE}",
    "100 bytes": f"write one of the units {UNITS_OF_SIZE}",
    "-5GB": "write a size above 0",
    "-5,5GB": "write a size above 0",
    "": "",
    "1,500GB": "",
    "2024": "",
    "5abc": "",
    "data/5,5GB": "",
    "1e999": "",
}


@pytest.mark.parametrize(("text", "size"), QUANTITIES.items())
def test_memory_sizes_are_parsed_to_bytes(text, size):
    assert parse_bytes(text) == size
    assert type(parse_bytes(text)) is int


@pytest.mark.parametrize("text", NOT_QUANTITIES)
def test_other_texts_are_a_value_error_that_quotes_them(text):
    with pytest.raises(ValueError, match="memory size") as caught:
        parse_bytes(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(("text", "advice"), ADVICE.items())
def test_advice_on_a_size_with_an_error_names_the_right_number_or_the_units(text, advice):
    assert advise_on_size(text) == advice


def test_all_units_of_messages_are_parsed():
    for unit in UNITS_OF_SIZE.split(", "):
        assert parse_bytes(f"1{unit}") > 0


@given(st.text(max_size=20) | st.from_regex(r"\s?[0-9.,_]*(e[0-9]*)?\s?[a-zA-Z]*", fullmatch=True))
def test_any_text_is_a_size_or_a_value_error(text):
    try:
        size = parse_bytes(text)
    except ValueError:
        return
    assert size >= 0


@given(st.integers(0, 2**53), st.sampled_from(["", "B", " b"]))
def test_whole_bytes_are_read_exactly(size, unit):
    assert parse_bytes(f"{size}{unit}") == size


@given(st.integers(0, 9 * 10**18))
def test_what_is_shown_can_be_read_back_to_four_digits(size):
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.0006)


@given(st.integers(0, 10**15))
def test_gigabytes_and_bytes_round_trip(size):
    assert gb_to_bytes(bytes_to_gb(size)) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1_234_567, "1.235 MB"),
        (2_400_000_000, "2.4 GB"),
        (110 * 10**9, "110 GB"),
        (1_500_000_000_000, "1.5 TB"),
        (10**15, "1 PB"),
        (-2_400_000_000, "-2.4 GB"),
    ],
)
def test_format_bytes_uses_decimal_units(size, text):
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("gigabytes", "size"),
    [
        (2.1, 2_100_000_000),
        (0.7, 700_000_000),
        (110 / 15, 7_333_333_333),
        (1e-9, 1),
        (1e300, int(1e300) * 10**9),
    ],
)
def test_gb_to_bytes_rounds_to_whole_bytes(gigabytes, size):
    assert gb_to_bytes(gigabytes) == size


def test_sums_of_bytes_are_exact_unlike_sums_of_gigabytes():
    assert not 6 * 2.1 <= 12.6
    assert 6 * gb_to_bytes(2.1) == gb_to_bytes(12.6)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (15, "15"),
        (15.0, "15"),
        (3.5, "3.5"),
        (1 / 3, "0.3333"),
        (9999.4, "9999"),
        (9999.7, "10000"),
        (123_456.0, "123456"),
        (-20_000.0, "-20000"),
    ],
)
def test_format_number_has_no_trailing_zeros(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "node", "0 nodes"),
        (1, "node", "1 node"),
        (2, "node", "2 nodes"),
        (1, "worker process", "1 worker process"),
        (2, "worker process", "2 worker processes"),
        (2, "GPU", "2 GPUs"),
    ],
)
def test_plural_depends_on_the_count(count, noun, text):
    assert plural(count, noun) == text


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_integers_of_python_and_numpy_become_int(value):
    assert whole_number(value) == 3
    assert type(whole_number(value)) is int


@pytest.mark.parametrize("value", [True, np.True_, 3.0, 2.5, "3", None, [3], int, np.array([1, 2])])
def test_values_that_are_not_integers_return_none(value):
    assert whole_number(value) is None


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [
        *dict.fromkeys(("", "s", "S", "sec", "secs", "second", "seconds", "Sec"), 1).items(),
        *dict.fromkeys(("m", "M", "min", "mins", "minute", "minutes", "Min", "MIN"), 60).items(),
        *dict.fromkeys(("h", "H", "hr", "hrs", "hour", "hours", "Hours"), 3600).items(),
        *dict.fromkeys(("d", "D", "day", "days"), 86_400).items(),
        *dict.fromkeys(("w", "wk", "wks", "week", "weeks"), 604_800).items(),
        *dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 0.001).items(),
        *dict.fromkeys(("us", "usec", "microsecond", "microseconds"), 1e-6).items(),
    ],
)
@pytest.mark.parametrize("text", ["2{}", "2 {}", " 2  {} ", "2.0{}"])
def test_durations_are_parsed_with_all_common_units(text, unit, seconds):
    written = text.format(unit)
    assert parse_seconds(written) == pytest.approx(2 * seconds)
    assert in_seconds(written) == (parse_seconds(written) if unit else written)
    # Dask reads the text as the same duration.
    assert parse_timedelta(to_dask_duration(written).strip()) == pytest.approx(2 * seconds)


@pytest.mark.parametrize(
    "text", ["min", "10 mi", "10 minn", "1 month", "", "-3 s", "1_0 s", "1:30"]
)
def test_texts_that_are_not_durations_are_an_error_or_returned_unchanged(text):
    with pytest.raises(ValueError, match="not a duration"):
        parse_seconds(text)
    assert in_seconds(text) == to_dask_duration(text) == text


@pytest.mark.parametrize(
    ("seconds", "formatted"),
    [(0, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min 0 s"),
     (3599.6, "1 h 0 min"), (86400, "24 h 0 min")],
)  # fmt: skip
def test_durations_are_rounded_for_display(seconds, formatted):
    assert format_duration(seconds) == formatted

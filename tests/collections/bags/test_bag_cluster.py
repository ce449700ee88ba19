"""Warnings and errors of workers reach the client."""

import json
import re
import time
import warnings

import pytest

import hyperplane
from hyperplane.bag import (
    bad_records,
    count_by,
    read_records,
    select,
    take,
    to_dataframe,
)
from hyperplane.errors import BadLines, BadLinesWarning


@pytest.mark.cluster
def test_helpers_on_a_cluster_return_all_records_and_warn_the_client(tmp_path):
    lines = [json.dumps({"n": n, "type": "ab"[n % 2], "user": {"id": n % 3}}) for n in range(900)]
    lines.insert(500, "oops")
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    client, cluster = hyperplane.initialize_cluster(
        nprocs=1, nthreads=2, num_workers=1, ram_gb_per_proc=1
    )
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_helpers(tmp_path / "a.jsonl", lines, caught)
    finally:
        client.close()
        cluster.close()
    warning_text = re.compile(r"1 of \d+ lines left out of .*a.jsonl; the first is .*: 'oops'")
    assert all(
        warning_text.match(str(warning.message)) for warning in drop_resource_warnings(caught)
    )
    assert {warning.category for warning in drop_resource_warnings(caught)} == {BadLinesWarning}


def drop_resource_warnings(caught):
    """Return the warnings except those about garbage of earlier tests."""
    return [warning for warning in caught if warning.category is not ResourceWarning]


def check_helpers(file, lines, caught):
    bag = read_records(file, blocksize="10kB")
    assert count_by(bag, "type").compute() == [("a", 450), ("b", 450)]
    # Warnings of workers are events, which may arrive after the result.
    deadline = time.monotonic() + 250
    while not drop_resource_warnings(caught):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    clean = select(bag, {"type": "a"})
    assert take(clean, 2) == tuple(json.loads(lines[i]) for i in (0, 2))
    assert take(clean, 1000)[-1]["n"] == 898
    frame = to_dataframe(bag, flatten=True)
    assert frame.groupby("user.id").n.sum().compute().sum() == sum(range(900))
    [bad] = bad_records(bag).compute()
    assert (bad["line"], bad["text"]) == (501, "oops")
    with pytest.raises(BadLines, match=r"line 501 of .*a\.jsonl"):
        read_records(file, limit=0).compute()

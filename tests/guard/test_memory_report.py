"""Reports travel as events of Dask, also between versions of the package."""

from __future__ import annotations

import msgpack
from test_memory_advice import make_report, make_task

from hyperplane.guard.memory_report import MemoryReport


def test_a_report_survives_the_trip_as_an_event() -> None:
    report = make_report(make_task(), held={"x": 1})
    event = msgpack.loads(msgpack.dumps(report.as_event()))
    assert MemoryReport.from_event(event) == report


def test_fields_of_other_versions_are_ignored_or_have_a_default() -> None:
    event = make_report(make_task()).as_event()
    del event["empty"], event["running"][0]["reserved_before"]
    event["later"] = event["running"][0]["later"] = 1
    report = MemoryReport.from_event(event)
    assert (report.empty, report.running[0].reserved_before) == (0, 0)

"""Unknown fields, and flags that are not booleans."""

from __future__ import annotations

import dask.bag as db
import pytest

from hyperplane.bag import count_by, select, to_dataframe
from hyperplane.errors import RequestError

RECORDS = [{"id": 1, "user": {"name": "a"}, "note": None}, {"id": 2}, {"id": 3, "tags": []}]


def bag():
    return db.from_sequence(RECORDS, npartitions=3)


def faults_of(**arguments):
    with pytest.raises(RequestError) as caught:
        to_dataframe(bag(), **arguments)
    return {fault.where: fault for fault in caught.value.faults}


@pytest.mark.parametrize(
    ("arguments", "where", "near"),
    [
        ({"fields": ["idd"]}, "fields", "'id'"),
        ({"fields": {"key": "idd"}}, "fields", "'id'"),
        ({"fields": ["id", "user.nam"]}, "fields", "'user.name'"),
        ({"types": {"idd": "int64"}}, "types", "'id'"),
        ({"types": {"user.nme": "string"}, "flatten": True}, "types", "'user.name'"),
    ],
)
def test_a_field_that_no_record_of_the_sample_has_is_reported(arguments, where, near):
    fault = faults_of(**arguments)[where]
    assert fault.allowed == "a field in the sample of 3 records"
    assert f"did you mean {near}" in fault.advice


def test_all_absent_fields_are_reported_together():
    with pytest.raises(RequestError) as caught:
        to_dataframe(bag(), fields=["idd", "id", "zzz"])
    assert [fault.asked for fault in caught.value.faults] == ["'idd'", "'zzz'"]
    assert "did you mean" not in caught.value.faults[1].advice


@pytest.mark.parametrize("name", ["note", "tags", "user.name", "user"])
def test_a_field_of_one_record_is_accepted(name):
    result = to_dataframe(bag(), fields=[name])
    assert result.columns.to_list() == [name]
    assert len(result.compute(scheduler="sync")) == 3


def test_a_rare_field_is_accepted_if_fields_and_types_name_it():
    rare = db.from_sequence([{"id": n} for n in range(50)] + [{"id": 50, "rare": 7}], npartitions=2)
    with pytest.raises(RequestError, match=r"in both fields= and types={'rare': \.\.\.}"):
        to_dataframe(rare, fields=["id", "rare"], sample=4)
    frame = to_dataframe(rare, fields=["id", "rare"], types={"rare": "Int64"}, sample=4)
    assert frame.rare.sum().compute(scheduler="sync") == 7
    renamed = to_dataframe(rare, fields={"r": "rare"}, types={"r": "Int64"}, sample=4)
    assert renamed.r.sum().compute(scheduler="sync") == 7


@pytest.mark.parametrize("flag", ["no", 0, None])
def test_flatten_must_be_a_boolean(flag):
    assert faults_of(flatten=flag)["flatten"].allowed == "True or False"


def test_a_misspelled_name_of_a_lazy_helper_gives_none():
    assert count_by(bag(), "idd").compute(scheduler="sync") == [(None, 3)]
    result = select(bag(), fields=["idd"]).compute(scheduler="sync")
    assert result == [{"idd": None}] * 3
    assert select(bag(), {"idd": 1}).compute(scheduler="sync") == []

"""The settings of engines."""

import re

import pytest
from pydantic import ValidationError

from hyperplane.spec.faults import faults_of
from hyperplane.spec.settings import EngineSettings, LocalSettings


def test_an_engine_may_add_its_own_and_has_the_common_ones():
    class OtherSettings(EngineSettings):
        hosts: tuple[str, ...] = ()

    assert OtherSettings(hosts=["a"], idle_timeout="30m").hosts == ("a",)


@pytest.mark.parametrize("value", [None, 60, 0.5, "300s", "5 minutes", "1h"])
def test_a_duration_is_seconds_or_text(value):
    assert LocalSettings(idle_timeout=value).idle_timeout == value


@pytest.mark.parametrize("value", ["", " ", "soon", "5 parsecs", -5, "nan", [1], {}])
def test_anything_else_is_no_duration(value):
    with pytest.raises(ValidationError):
        LocalSettings(idle_timeout=value)


def test_the_forms_that_a_fault_names_are_durations():
    with pytest.raises(ValidationError) as caught:
        LocalSettings(idle_timeout="30 min")
    [fault] = faults_of(caught.value)
    forms = re.findall("'([^']+)'", fault.allowed)
    assert len(forms) == 3
    for form in forms:
        LocalSettings(idle_timeout=form)

"""Settings of engines."""

import re

import pytest
from dask.utils import parse_timedelta
from pydantic import ValidationError

from hyperplane.core.pydantic_faults import faults_from_validation
from hyperplane.core.units import parse_seconds
from hyperplane.jobs.definition.step import Step
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, KubernetesSettings, LocalSettings
from hyperplane.spec.settings.jobs import JobSettings
from hyperplane.spec.settings.slurm import parse_walltime


def test_settings_of_an_engine_include_the_common_ones():
    class OtherSettings(EngineSettings):
        hosts: tuple[str, ...] = ()

    assert OtherSettings(hosts=["a"], idle_timeout="30m").hosts == ("a",)


@pytest.mark.parametrize("value", [None, 60, 0.5, "300s", "5 minutes", "1h"])
def test_durations_are_seconds_or_text(value):
    assert LocalSettings(idle_timeout=value).idle_timeout == value


def test_durations_are_rewritten_in_units_that_dask_accepts():
    settings = LocalSettings(worker_ttl="2 min", no_workers_timeout="90 sec")
    assert parse_timedelta(settings.worker_ttl) == 120
    assert parse_timedelta(settings.no_workers_timeout) == 90


def test_all_durations_accept_the_same_units():
    assert parse_walltime("10 min") == parse_walltime("10 minutes") == 600
    jobs = JobSettings(grace="1 min", timeout="2 hrs", active_timeout=-1)
    assert (parse_seconds(jobs.grace), jobs.timeout, jobs.active_timeout) == (60, 7200, -1)
    assert Step(name="a", kind="command", argv=["a"], timeout="10 min").timeout == 600
    request = ClusterRequest(num_workers=1, timeout="20 min", idle_timeout="1 hr")
    assert (request.timeout, request.idle_timeout) == (1200, 3600)


@pytest.mark.parametrize("value", ["", " ", "soon", "5 parsecs", -5, "nan", [1], {}])
def test_other_values_are_not_durations(value):
    with pytest.raises(ValidationError):
        LocalSettings(idle_timeout=value)


def test_examples_in_the_fault_of_a_duration_are_valid():
    with pytest.raises(ValidationError) as caught:
        LocalSettings(idle_timeout="30 mi")
    [fault] = faults_from_validation(caught.value)
    forms = re.findall("'([^']+)'", fault.allowed)
    assert len(forms) == 3
    for form in forms:
        LocalSettings(idle_timeout=form)


@pytest.mark.parametrize("size", ["big", "1 kB", 5])
def test_an_invalid_log_limit_is_a_fault_with_the_smallest_size(size):
    with pytest.raises(ValidationError) as caught:
        JobSettings(log_limit=size)
    [fault] = faults_from_validation(caught.value)
    assert fault.allowed == "at least 4096 bytes, such as '100 MB'; null for no limit"


@pytest.mark.parametrize(
    ("image", "valid"),
    [
        *((name, True) for name in ("a", "a:1", "a/b:2026.8.0-py3.11", "localhost/a", "a__b/c--d")),
        *((name, True) for name in ("registry.example:5000/a/b:Tag_1", "[::1]:5000/a", "UP/a")),
        *((f"a{tag}@sha256:{'0f' * 32}", True) for tag in ("", ":1")),
        *((name, False) for name in ("registry/UPPER:1", "UPPER", "http://reg/a:1", "a//b", "a/")),
        *((name, False) for name in ("a@sha256:zz", "a@sha256:00", "a:", "a:-1", "a:1:2", "-a")),
        *((name, False) for name in ("a b", "a:1\n", "a._b", "a" * 600, "a:" + "1" * 129)),
    ],
)
def test_names_of_images_follow_the_grammar_of_registries(image: str, valid: bool) -> None:
    if valid:
        assert KubernetesSettings(image=image).image == image
    else:
        with pytest.raises(ValidationError, match="the name of an image, such as registry"):
            KubernetesSettings(image=image)

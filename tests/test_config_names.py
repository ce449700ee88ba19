"""Unknown names in the configuration: each fault lists the known ones."""

from importlib.metadata import EntryPoint

import dask.config
import pytest

import hyperplane
from hyperplane import config
from hyperplane.clusters.registry import ENGINES
from hyperplane.errors import ConfigError
from hyperplane.sizing.rules import SizingRules
from hyperplane.spec.settings import EngineSettings, JobSettings, LocalSettings, SshSettings


@pytest.mark.parametrize(
    ("path", "known", "near"),
    [
        ("sizing.mulitpliers", SizingRules.model_fields, "multipliers"),
        ("tuning.profil", ["profile", "profiles"], "profile"),
        ("engines.local.fitt", LocalSettings.model_fields, "fit"),
        ("engines.ssh.host", SshSettings.model_fields, "hosts"),
        ("engines.ssh.zzz", SshSettings.model_fields, ""),
        ("engines.shs", ["auto", *map(config.engine_section, ENGINES.built_in)], "ssh"),
        ("engines.zzz", ["auto", *map(config.engine_section, ENGINES.built_in)], ""),
        ("jobs.hom", JobSettings.model_fields, "home"),
    ],
)
def test_the_fault_of_an_unknown_key_lists_the_known_keys(path, known, near):
    with dask.config.set({f"hyperplane.{path}": 0.9}):
        [fault] = config.faults(ENGINES)
    assert (fault.where, fault.asked) == (f"hyperplane.{path}", "0.9")
    assert set(fault.allowed.removeprefix("one of ").split(", ")) == set(known)
    assert fault.advice == (f"did you mean {near}?" if near else "")
    assert fault.source == "dask.config.set"


def test_a_section_of_an_unknown_engine_is_an_error_before_planning():
    settings = dask.config.set({"hyperplane.engines.shs": {"hosts": ["a"]}})
    with settings, pytest.raises(ConfigError) as caught:
        hyperplane.plan_cluster(engine="local")
    [fault] = caught.value.faults
    assert fault.where == "hyperplane.engines.shs"


def test_an_engine_of_another_package_may_have_a_section(monkeypatch):
    points = [EntryPoint("my-engine", "somewhere:Engine", "hyperplane.engines")]
    monkeypatch.setattr("hyperplane.core.registry.entry_points", lambda group: points)
    with dask.config.set({"hyperplane.engines.my-engine": {"a": 1}}):
        assert config.faults(ENGINES) == []
    with dask.config.set({"hyperplane.engines.my_engin": {"a": 1}}):
        [fault] = config.faults(ENGINES)
    assert fault.advice == "did you mean my-engine?"


class SiteSettings(EngineSettings):
    """Settings of an engine of another package."""

    partition: str = "short"


class SiteEngine:
    """An engine of another package, for another framework."""

    settings = SiteSettings


def test_the_section_of_an_engine_of_another_package_is_checked(monkeypatch):
    points = [EntryPoint("ray:site", f"{__name__}:SiteEngine", "hyperplane.engines")]
    monkeypatch.setattr("hyperplane.core.registry.entry_points", lambda group: points)
    with dask.config.set({"hyperplane.engines.ray_site": {"partition": "long"}}):
        assert config.faults(ENGINES) == []
        assert config.engine_settings("ray:site", SiteSettings).partition == "long"
    with dask.config.set({"hyperplane.engines.ray_site": {"partitio": "long"}}):
        [fault] = config.faults(ENGINES)
    assert fault.where == "hyperplane.engines.ray_site.partitio"
    assert fault.advice == "did you mean partition?"

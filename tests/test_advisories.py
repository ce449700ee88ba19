"""The minimum versions of dependencies contain no fault that is listed here."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


class Advisory(NamedTuple):
    """A fault of a package that is corrected in a version, and in all later ones."""

    package: str
    identifier: str
    corrected: str


#: ``make audit`` finds new ones. Add a line here and raise the minimum in pyproject.toml.
#: Identifiers and versions are those of the Python Packaging Advisory Database, of the CVE records,
#: or of advisories on GitHub.
ADVISORIES = [
    Advisory("asyncssh", "CVE-2023-48795", "2.14.2"),
    Advisory("cryptography", "CVE-2024-12797", "44.0.1"),
    Advisory("cryptography", "CVE-2026-26007", "46.0.5"),
    Advisory("cryptography", "CVE-2026-34073", "46.0.6"),
    Advisory("cryptography", "CVE-2026-39892", "46.0.7"),
    Advisory("cryptography", "GHSA-537c-gmf6-5ccf", "48.0.1"),
    Advisory("dask", "CVE-2021-42343", "2021.10.0"),
    Advisory("distributed", "CVE-2021-42343", "2021.10.0"),
    Advisory("distributed", "CVE-2026-23528", "2026.1.0"),
    Advisory("flask", "CVE-2026-27205", "3.1.3"),
    Advisory("flask-cors", "CVE-2024-6839", "6.0.0"),
    Advisory("joblib", "CVE-2022-21797", "1.2.0"),
    Advisory("jupyterlab", "CVE-2026-102831", "4.6.4"),
    Advisory("keras", "CVE-2025-1550", "3.8.0"),
    Advisory("lightgbm", "CVE-2024-43598", "4.6.0"),
    Advisory("pyarrow", "CVE-2023-47248", "14.0.1"),
    Advisory("pyyaml", "CVE-2020-14343", "5.4"),
    Advisory("ray", "CVE-2025-62593", "2.52.0"),
    Advisory("scikit-learn", "CVE-2024-5206", "1.5.0"),
    Advisory("skops", "CVE-2025-54412", "0.12.0"),
    Advisory("skops", "CVE-2025-54886", "0.13.0"),
    Advisory("starlette", "CVE-2025-62727", "0.49.1"),
    Advisory("starlette", "PYSEC-2026-161", "1.0.1"),
    Advisory("starlette", "PYSEC-2026-248", "1.3.0"),
    Advisory("starlette", "PYSEC-2026-249", "1.3.1"),
    Advisory("strawberry-graphql", "CVE-2024-47082", "0.243.0"),
    Advisory("strawberry-graphql", "CVE-2026-35523", "0.312.3"),
    Advisory("strawberry-graphql", "CVE-2026-45739", "0.315.4"),
    Advisory("strawberry-graphql", "CVE-2026-47706", "0.315.7"),
    Advisory("strawberry-graphql", "CVE-2026-47707", "0.315.7"),
    Advisory("torch", "CVE-2025-32434", "2.6.0"),
    Advisory("torch", "CVE-2026-24747", "2.10.0"),
    Advisory("uvicorn", "CVE-2020-7694", "0.11.7"),
]


def _requirements() -> list[Requirement]:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    found = [Requirement(line) for line in lines]
    return [requirement for requirement in found if requirement.name != "hyperplane"]


def _minimum(requirement: Requirement) -> Version:
    return max(
        Version(one.version) for one in requirement.specifier if one.operator in (">=", "==")
    )


@pytest.mark.parametrize("advisory", ADVISORIES, ids=lambda each: f"{each[0]}-{each[1]}")
def test_the_minimum_version_is_not_affected(advisory: Advisory) -> None:
    named = [
        requirement
        for requirement in _requirements()
        if canonicalize_name(requirement.name) == advisory.package
    ]
    assert named, "remove the line of a package that is no dependency any more"
    for requirement in named:
        assert _minimum(requirement) >= Version(advisory.corrected), str(requirement)


def test_every_dependency_has_a_minimum_version() -> None:
    without = [str(each) for each in _requirements() if not len(each.specifier)]
    assert without == []

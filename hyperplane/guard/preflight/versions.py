"""Versions of packages that must agree between this process and the workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hyperplane.guard.preflight.report import PreflightFinding

#: Packages whose versions must agree, so that processes can read the tasks and messages of others.
MUST_AGREE = ("python", "dask", "distributed", "cloudpickle", "msgpack", "numpy", "pandas")
#: Packages of ``MUST_AGREE`` whose versions need to agree in the first two numbers only.
MAJOR_MINOR_ONLY = ("python", "numpy", "pandas")
#: Packages whose versions should agree; a difference is a warning.
SHOULD_AGREE = ("pyarrow", "hyperplane")
#: All packages that are compared.
PACKAGES = (*MUST_AGREE, *SHOULD_AGREE)


def shorten_version(package: str, version: str | None) -> str | None:
    """Return the part of a version that must agree.

    Examples
    --------
    >>> shorten_version("python", "3.11.7.final.0"), shorten_version("dask", "2026.8.0")
    ('3.11', '2026.8.0')
    """
    if version and package in MAJOR_MINOR_ONLY:
        return ".".join(version.split(".")[:2])
    return version


def describe_differences(
    package: str, here: Mapping[str, str | None], there: Mapping[str, Mapping[str, str | None]]
) -> str:
    """Return one line on the different versions of a package; empty if all agree."""
    mine = shorten_version(package, here.get(package))
    others: dict[str | None, list[str]] = {}
    for place, versions in there.items():
        version = shorten_version(package, versions.get(package))
        if version != mine:
            others.setdefault(version, []).append(place)
    if not others:
        return ""
    texts = [f"{version or 'none'} on {join_places(places)}" for version, places in others.items()]
    return f"{package} {mine or 'none'} here, {', '.join(texts)}"


def compare_versions(
    here: Mapping[str, str | None], there: Mapping[str, Mapping[str, str | None]], refuse: bool
) -> Iterator[PreflightFinding]:
    """Yield one finding for each package whose versions differ, or that all agree."""
    advice = "install the same version in both places"
    agree = True
    for package in PACKAGES:
        text = describe_differences(package, here, there)
        if text:
            agree = False
            must = refuse and package in MUST_AGREE
            yield PreflightFinding("versions", "fault" if must else "warning", text, advice)
    if agree and there:
        names = ", ".join(PACKAGES)
        yield PreflightFinding("versions", "ok", f"{names} agree on {join_places(there)}")


def join_places(names: Iterable[str]) -> str:
    """Return at most two names of places, and the number of the others.

    Examples
    --------
    >>> join_places(["a", "b"]), join_places(["a", "b", "c"])
    ('a and b', 'a, b and 1 more')
    """
    places = list(names)
    if len(places) <= 2:
        return " and ".join(places)
    return f"{', '.join(places[:2])} and {len(places) - 2} more"

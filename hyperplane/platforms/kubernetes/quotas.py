"""Compare the resources of pods with the quotas of a namespace."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

#: Resources in bytes.
_IN_BYTES = ("memory", "ephemeral-storage")
#: Units of Kubernetes; upper and lower case differ, unlike in sizes that users write elsewhere.
_UNITS: dict[str, Fraction | int] = {
    "": 1,
    **{unit: Fraction(1, 1000**power) for power, unit in enumerate("mun", 1)},
    **{unit: 1000**power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)([numkMGTPE]|[KMGTPE]i)?")


class QuotaShortage(NamedTuple):
    """A resource of which pods need more than a quota has.

    Parameters
    ----------
    quota, resource : str
        Name of the ResourceQuota, and its key, such as ``requests.memory``.
    needed, hard, used : str
        What the pods need, what the quota permits, and what is in use, in the quota's units.
    never : bool
        Whether the pods need more than the whole quota.
    """

    quota: str
    resource: str
    needed: str
    hard: str
    used: str
    never: bool


def sum_resources(pods: Iterable[tuple[int, Mapping[str, Any]]]) -> Counter[str]:
    """Return the total resources of pods by the keys of quotas.

    Cores are in millicores, memory is in bytes; ``pods`` has the number and the spec of each kind.
    """
    total: Counter[str] = Counter()
    for count, spec in pods:
        total["pods"] += count
        for container in spec["containers"]:
            resources = container.get("resources") or {}
            for kind in ("requests", "limits"):
                for name, amount in (resources.get(kind) or {}).items():
                    total[f"{kind}.{name}"] += count * parse_quantity(name, amount)
    for name in ("cpu", *_IN_BYTES):  # a quota may name requests without a prefix
        total[name] = total[f"requests.{name}"]
    return total


def find_shortages(
    quotas: Iterable[Mapping[str, Any]], needed: Mapping[str, int]
) -> Iterator[QuotaShortage]:
    """Yield each resource of which pods need more than a quota has left.

    Quotas with scopes, such as one for a priority class, are left out: whether they apply to the
    pods depends on defaults of the cluster.
    """
    for quota in quotas:
        spec = quota.get("spec", {})
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        status = quota.get("status", {})
        used = status.get("used", {})
        hard = status.get("hard") or spec.get("hard", {})
        for key, limit in hard.items():
            if not needed.get(key):
                continue
            name = key.rpartition(".")[2]
            try:
                most, taken = parse_quantity(name, limit), parse_quantity(name, used.get(key, "0"))
            except ValueError:  # not a quantity, which the server explains
                continue
            if needed[key] > most - taken:
                yield QuotaShortage(
                    quota["metadata"]["name"],
                    key,
                    _format_quantity(name, needed[key]),
                    str(limit),
                    str(used.get(key, "0")),
                    needed[key] > most,
                )


def parse_quantity(name: str, text: str | float) -> int:
    """Return cores as millicores, memory as bytes, and other quantities as numbers, rounded up.

    Raises
    ------
    ValueError
        If the text is no quantity of Kubernetes.

    Examples
    --------
    >>> parse_quantity("cpu", "1500m"), parse_quantity("cpu", "2"), parse_quantity("memory", "2Gi")
    (1500, 2000, 2147483648)
    >>> parse_quantity("pods", "1k"), parse_quantity("ephemeral-storage", "1.5e9")
    (1000, 1500000000)
    """
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is no quantity such as '500m' or '4Gi'")
    number = Fraction(match[1]) * _UNITS[match[2] or ""]
    return math.ceil(number * 1000 if name == "cpu" else number)


def _format_quantity(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{amount}m"
    return f"{-(-amount // (1 << 20))}Mi" if name in _IN_BYTES else str(amount)

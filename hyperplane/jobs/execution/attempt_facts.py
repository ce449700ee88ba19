"""What is known of an attempt before its start: its code, its price, and versions of packages."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import DistributionFinder, MetadataPathFinder
from pathlib import Path
from typing import Any

from hyperplane.core.errors import HyperplaneError
from hyperplane.guard.run_recorder import PACKAGES
from hyperplane.history.code_digest import digest_file, digest_texts
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.base import HourlyPricedRunner, SharedFilesystemMixin

_log = logging.getLogger(__name__)
#: Suffix of the file with the facts of an attempt: a supervisor that starts later reads it.
FACTS_SUFFIX = ".facts"
#: Bytes of the largest such file.
_LARGEST = 100_000
#: Kinds of steps that run the interpreter of the job.
_PYTHON_KINDS = {"notebook", "python", "train"}


@dataclass(frozen=True)
class AttemptFacts:
    """Facts of one attempt.

    Parameters
    ----------
    code : str
        Digest of what it runs; empty if unknown.
    price : float or None
        Price of an hour of a container or node; None if unknown.
    currency : str
        Its currency.
    versions : mapping of str to str
        Versions of Python and packages, or the image of the container.
    """

    code: str = ""
    price: float | None = None
    currency: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


def write_facts(runner: object, step: Step, command: AttemptCommand, memory_factor: float) -> None:
    """Write the facts of an attempt that is about to start, beside its other files."""
    price, currency = _find_price(runner, step, command.pool, memory_factor)
    facts = AttemptFacts(
        digest_step(step, command), price, currency, _find_versions(runner, step, command)
    )
    with suppress(OSError):  # a full disk: the attempt starts without them
        command.file(FACTS_SUFFIX).write_text(json.dumps(vars(facts)))


def read_facts(command: AttemptCommand) -> AttemptFacts:
    """Read the facts of an attempt; none if it has left none, or other ones."""
    with suppress(OSError, ValueError, TypeError, RecursionError):
        with command.file(FACTS_SUFFIX).open("rb") as file:
            facts = AttemptFacts(**json.loads(file.read(_LARGEST)))
        price = facts.price
        is_price = price is None or (isinstance(price, int | float) and 0 <= price < float("inf"))
        texts = [facts.code, facts.currency, *facts.versions, *facts.versions.values()]
        if is_price and all(isinstance(text, str) for text in texts):
            return facts
    return AttemptFacts()


def digest_step(step: Step, command: AttemptCommand) -> str:
    """Return the digest of a step's program: its file, words and Python package.

    Empty if its file cannot be read.
    """
    texts = [step.kind, *step.argv, *step.args, step.module_name or "", step.kernel or ""]
    if command.script is not None:
        of_file = digest_file(command.script)
        if not of_file:
            return ""
        texts.append(of_file)
    return digest_texts(texts)


def _find_price(
    runner: object, step: Step, pool: str, memory_factor: float
) -> tuple[float | None, str]:
    """Return the price of an hour and its currency, if they are known."""
    if not isinstance(runner, HourlyPricedRunner):
        return None, ""
    # The sizes of the pool are those of the step by now; its name leads to its price.
    resources = step.resources.model_copy(update={"pool": pool or step.resources.pool})
    priced = step.model_copy(update={"resources": resources})
    try:
        price = runner.hourly_price(priced, memory_factor)
    except HyperplaneError as error:  # a cost is worth no failure of the step
        _log.info("the price of step %r is unknown: %s", step.name, error)
        return None, ""
    return (None, "") if price.amount is None else (float(price.amount), price.currency)


def _find_versions(runner: object, step: Step, command: AttemptCommand) -> dict[str, str]:
    if not isinstance(runner, SharedFilesystemMixin):
        image = getattr(runner, "image", None)
        return {"image": image} if isinstance(image, str) and image else {}
    runs_python = step.kind in _PYTHON_KINDS or step.argv[:1] == (command.python,)
    return dict(read_versions(command.python)) if runs_python else {}


@lru_cache(maxsize=32)
def read_versions(python: str) -> Mapping[str, str]:
    """Return the versions of an interpreter in a virtual environment and of its packages.

    They are read from its files, without a start of it; nothing if it is in none.
    """
    folder = Path(python).parent.parent
    versions: dict[str, str] = {}
    with suppress(OSError, UnicodeDecodeError):
        for line in (folder / "pyvenv.cfg").read_text().splitlines():
            name, _, value = line.partition("=")
            if name.strip() in ("version", "version_info"):
                versions["python"] = ".".join(value.strip().split(".")[:3])
    if not versions:
        return {}
    paths = [str(path) for path in sorted(folder.glob("lib/python*/site-packages"))]
    for name in PACKAGES:
        context: Any = DistributionFinder.Context(name=name, path=paths)
        for found in MetadataPathFinder.find_distributions(context):
            versions[name] = found.version
            break
    return versions

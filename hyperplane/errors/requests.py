"""What is wrong with a request, a configuration or an installation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a request or a configuration.

    Parameters
    ----------
    where : str
        The argument, or the path of the key, that holds the fault.
    asked : str
        What was given, as text.
    allowed : str
        What may stand there.
    advice : str
        What to do next; may be empty.
    source : str
        The file or variable that the value came from; empty for arguments.
    """

    where: str
    asked: str
    allowed: str
    advice: str = ""
    source: str = ""

    def __str__(self) -> str:
        source = f"{self.source}: " if self.source else ""
        advice = f"; {self.advice}" if self.advice else ""
        return f"{source}{self.where} = {self.asked}: allowed is {self.allowed}{advice}"


@dataclass(frozen=True)
class UnknownName(Fault):
    """An argument that the called function does not have.

    Parameters
    ----------
    where, asked, allowed, advice, source : str
        As for :class:`Fault`; ``allowed`` names all arguments of the function.
    function : str
        The function.
    """

    function: str = ""

    def __str__(self) -> str:
        end = "" if self.advice.endswith("?") else ";"
        advice = f"{self.advice}{end} " if self.advice else ""
        wrong = f"unknown argument of {self.function}"
        return f"{self.where}={self.asked}: {wrong}; {advice}allowed is {self.allowed}"


def _rebuild(cls: type[HyperplaneError], message: str, fields: dict[str, Any]) -> HyperplaneError:
    error = cls.__new__(cls, message)
    error.args = (message,)
    error.__dict__.update(fields)
    return error


class HyperplaneError(Exception):
    """Base of every error of this package."""

    def __init__(self, message: str) -> None:
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.__dict__)


def _numbered(title: str, faults: Sequence[Fault]) -> str:
    count = f"{len(faults)} fault" + ("" if len(faults) == 1 else "s")
    lines = [f"  {number}. {fault}" for number, fault in enumerate(faults, 1)]
    return "\n".join([title.format(count=count), *lines])


class RequestError(HyperplaneError, ValueError):
    """A call asks for something that cannot be.

    Attributes
    ----------
    faults : tuple of Fault
        Everything that is wrong with the request, not only the first thing.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(_numbered("{count} in the request:", faults))
        self.faults = tuple(faults)

    def state(self, outcome: str) -> None:
        """Name in the message what was not done, such as ``nothing was started``."""
        self.args = (_numbered(f"{{count}} in the request, {outcome}:", self.faults),)


class UnknownArgument(RequestError, TypeError):
    """A call has an argument that the function does not have; Python's TypeError, too."""


def check(faults: Iterable[Fault]) -> None:
    """Raise one :class:`RequestError` with all faults, if there are any."""
    found = list(faults)
    if found:
        raise request_error(found)


def request_error(faults: Sequence[Fault]) -> RequestError:
    """The error of faults: UnknownArgument when one of them is an unknown name."""
    is_unknown = any(isinstance(fault, UnknownName) for fault in faults)
    return (UnknownArgument if is_unknown else RequestError)(faults)


class UnknownPool(RequestError):
    """No pool has that name.

    Attributes
    ----------
    name : str
        The name as it was given.
    known : tuple of str
        The names of the pools that there are.
    """

    def __init__(self, name: str, known: Sequence[str], nearest: Sequence[str]) -> None:
        close = f"did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__([Fault("pool", repr(name), "one of " + ", ".join(known), close)])
        self.name = name
        self.known = tuple(known)


class DoesNotFit(RequestError):
    """What was asked of a node is more than the node has to give.

    Attributes
    ----------
    pool : str
        The pool that was asked for, or the largest one when none was named.
    asked, allowed : str
        Both sides of the comparison.
    """

    def __init__(self, pool: str, asked: str, allowed: str, advice: str = "") -> None:
        super().__init__([Fault("worker", asked, allowed, advice)])
        self.pool = pool
        self.asked = asked
        self.allowed = allowed


class ConfigError(HyperplaneError, ValueError):
    """The configuration holds something that cannot be used.

    Attributes
    ----------
    faults : tuple of Fault
        All faults, each with its file, key path, value and what is allowed.
    path : str
        The key path of the first fault.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(_numbered("{count} in the configuration:", faults))
        self.faults = tuple(faults)
        self.path = faults[0].where if faults else ""


class UnsupportedModule(HyperplaneError, ImportError):
    """A documented module of the platform that this package does not provide.

    Attributes
    ----------
    module : str
        The module.
    """

    # No ModuleNotFoundError: ``from hyperplane import ...`` would replace it with its own error.
    def __init__(self, module: str, advice: str) -> None:
        super().__init__(f"{module} is not provided by this package; {advice}")
        self.module = module


class MissingPackage(HyperplaneError, ImportError):
    """An optional package is needed and not installed.

    Attributes
    ----------
    package, extra : str
        The package, and the extra of hyperplane that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is needed for this and is not installed; "
            f"install it with: pip install 'hyperplane[{extra}]'"
        )
        self.package = package
        self.extra = extra

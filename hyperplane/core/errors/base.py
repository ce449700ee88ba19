"""Errors of requests, configuration and installation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fault:
    """One invalid value of a request or a configuration.

    Parameters
    ----------
    where : str
        Name of the argument, or path of the key.
    asked : str
        The invalid value, as text; ``"nothing"`` for a missing value. Empty if the fault does not
        concern a value; ``allowed`` then says what is wrong.
    allowed : str
        Description of valid values.
    advice : str
        Advice on the next step; may be empty.
    source : str
        File, environment variable or ``dask.config.set`` of the value; empty for arguments.
    """

    where: str
    asked: str
    allowed: str
    advice: str = ""
    source: str = ""

    def __str__(self) -> str:
        source = f"{self.source}: " if self.source else ""
        advice = f"; {self.advice}" if self.advice else ""
        if not self.asked:
            return f"{source}{self.where}: {self.allowed}{advice}"
        if self.asked == "nothing":
            return f"{source}{self.where} is not set; expected {self.allowed}{advice}"
        # "no such key" describes the fault itself, unlike all other texts.
        expected = (
            self.allowed if self.allowed.startswith("no such ") else f"expected {self.allowed}"
        )
        return f"{source}{self.where} = {self.asked}: {expected}{advice}"


@dataclass(frozen=True)
class UnknownName(Fault):
    """An argument that the called function does not have.

    Parameters
    ----------
    where, asked, allowed, advice, source : str
        As for :class:`Fault`; ``allowed`` lists all arguments of the function.
    function : str
        Name of the function.
    """

    function: str = ""

    def __str__(self) -> str:
        end = "" if self.advice.endswith("?") else ";"
        advice = f"{self.advice}{end} " if self.advice else ""
        problem = f"unknown argument of {self.function}"
        return f"{self.where}={self.asked}: {problem}; {advice}expected {self.allowed}"


@dataclass(frozen=True)
class UnknownKey(Fault):
    """A key that the configuration, a pipeline file or a mapping in an argument does not have.

    Parameters
    ----------
    where, asked, allowed, advice, source : str
        As for :class:`Fault`; ``allowed`` lists all keys, and ``asked`` is the value of the key.
    """

    def __str__(self) -> str:
        source = f"{self.source}: " if self.source else ""
        advice = f"; {self.advice}" if self.advice else ""
        problem = f"no such key; expected {self.allowed}"
        return f"{source}{self.where} = {self.asked}: {problem}{advice}"


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

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows of this error."""
        from hyperplane.core.tracebacks import render_error  # only notebooks need it

        return render_error(self)


def _number_faults(title: str, faults: Sequence[Fault]) -> str:
    count = f"{len(faults)} fault" + ("" if len(faults) == 1 else "s")
    lines = [f"  {number}. {fault}" for number, fault in enumerate(faults, 1)]
    return "\n".join([title.format(count=count), *lines])


class RequestError(HyperplaneError, ValueError):
    """A call has invalid arguments.

    Attributes
    ----------
    faults : tuple of Fault
        All faults of the request, not only the first.
    """

    _outcome = ""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(_number_faults("{count} in the request:", faults))
        self.faults = tuple(faults)

    def state(self, outcome: str) -> None:
        """Add the outcome to the message, such as ``nothing was started``."""
        self._outcome = f", {outcome}"
        self.replace_faults(self.faults)

    def replace_faults(self, faults: Sequence[Fault]) -> None:
        """Replace the faults, also in the message; their arguments may have other names."""
        self.faults = tuple(faults)
        self.args = (_number_faults(f"{{count}} in the request{self._outcome}:", self.faults),)


class UnknownArgument(RequestError, TypeError):
    """A call has an argument that the function does not have; also a TypeError."""


def check(faults: Iterable[Fault]) -> None:
    """Raise one :class:`RequestError` with all faults if there are any."""
    all_faults = list(faults)
    if all_faults:
        raise request_error(all_faults)


def request_error(faults: Sequence[Fault]) -> RequestError:
    """Create the error of faults: UnknownArgument if one of them is an unknown name."""
    is_unknown = any(isinstance(fault, UnknownName) for fault in faults)
    return (UnknownArgument if is_unknown else RequestError)(faults)


class UnknownPool(RequestError):
    """There is no pool of that name.

    Attributes
    ----------
    name : str
        The unknown name.
    known : tuple of str
        Names of all pools.
    """

    def __init__(self, name: str, known: Sequence[str], nearest: Sequence[str]) -> None:
        close = f"did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__([Fault("pool", repr(name), "one of " + ", ".join(known), close)])
        self.name = name
        self.known = tuple(known)


class DoesNotFit(RequestError):
    """The requested layout exceeds a node.

    Attributes
    ----------
    pool : str
        The requested pool, or the largest one if none was requested; empty on this machine.
    asked, allowed : str
        The requested and the available size.
    """

    def __init__(self, pool: str, asked: str, allowed: str, advice: str = "") -> None:
        super().__init__([Fault("worker", asked, allowed, advice)])
        self.pool = pool
        self.asked = asked
        self.allowed = allowed


class ConfigError(HyperplaneError, ValueError):
    """The configuration has invalid values.

    Attributes
    ----------
    faults : tuple of Fault
        All faults, each with its file, key, value and what is allowed.
    path : str
        Key of the first fault.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(_number_faults("{count} in the configuration:", faults))
        self.faults = tuple(faults)
        self.path = faults[0].where if faults else ""


class UnsupportedModule(HyperplaneError, ImportError):
    """A documented module of the platform that this package does not provide.

    Attributes
    ----------
    module : str
        Name of the module.
    """

    # ``from hyperplane import ...`` would replace a ModuleNotFoundError by its own message.
    def __init__(self, module: str, advice: str) -> None:
        super().__init__(f"{module} is not provided by this package; {advice}")
        self.module = module


class MissingPackage(HyperplaneError, ImportError):
    """A required optional package is not installed.

    Attributes
    ----------
    package, extra : str
        Name of the package, and the extra of hyperplane that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is needed for this and is not installed; "
            f"install it with: pip install 'hyperplane[{extra}]'"
        )
        self.package = package
        self.extra = extra

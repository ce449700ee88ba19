"""Findings about modules of the program that the workers lack."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from hyperplane.guard.preflight.environment import PreflightEnvironment
from hyperplane.guard.preflight.program_modules import LocalModule, ProgramModules
from hyperplane.guard.preflight.report import PreflightFinding, State
from hyperplane.guard.preflight.versions import join_places

#: Subject of the findings on local modules.
MODULES = "modules"
_NOWHERE = "install it, or correct its name"
_SYNC = "pass sync=True to ship them to the workers, or install them there"


def check_modules(
    program: ProgramModules,
    workers: Mapping[str, PreflightEnvironment],
    needed: Collection[str] = (),
    sync: bool = False,
) -> Iterator[PreflightFinding]:
    """Yield findings for modules that places of workers lack, or have in another version.

    Parameters
    ----------
    program : ProgramModules
        Modules of the program.
    workers : mapping
        Place -> environment of its workers.
    needed : collection of str
        Modules that tasks certainly need; that one is missing is a fault.
    sync : bool
        Whether local modules are shipped, so that the workers need not have them.
    """
    found = [
        *_find_missing_packages(program, workers, needed),
        *(() if sync else _find_local(program, workers, needed)),
        *_find_nowhere(program, workers),
        *_find_incomplete(program),
    ]
    yield from found
    names = program.packages if sync else program.names
    if not found and workers and names:
        text = f"{', '.join(names)}: present on {join_places(workers)}"
        yield PreflightFinding(MODULES, "ok", text)


def check_unknown_modules(
    program: ProgramModules, where: str, needed: Collection[str] = (), sync: bool = False
) -> Iterator[PreflightFinding]:
    """Yield findings if it cannot be known which modules ``where``, such as an image, has."""
    yield from _find_incomplete(program)
    if program.absent:
        text = f"{', '.join(program.absent)}: tasks import what this machine lacks, and {where} may"
        yield PreflightFinding("packages", "unchecked", f"{text} lack, too", _NOWHERE)
    if not sync:
        yield from _list_unknown(program, where, needed)
    if program.packages:
        certain = f", and the tasks need {', '.join(needed)}" if needed else ""
        text = f"it cannot be known whether {where} has {', '.join(program.packages)}{certain}"
        yield PreflightFinding("packages", "unchecked", text)


def _find_incomplete(program: ProgramModules) -> Iterator[PreflightFinding]:
    if not program.complete:
        text = "the program has so many names that not all of its modules are known"
        yield PreflightFinding("modules", "unchecked", text)


def _find_missing_packages(
    program: ProgramModules, workers: Mapping[str, PreflightEnvironment], needed: Collection[str]
) -> Iterator[PreflightFinding]:
    for name in program.packages:
        # A folder without a package may have the name by chance.
        if absent := _find_places(workers, name, lambda digest: not digest):
            text = f"{name} is installed here, but not on {absent}"
            state: State = "fault" if name in needed else "warning"
            yield PreflightFinding("packages", state, text, "install it there")


def _find_nowhere(
    program: ProgramModules, workers: Mapping[str, PreflightEnvironment]
) -> Iterator[PreflightFinding]:
    for name in program.absent:
        if places := _find_places(workers, name, lambda digest: not digest):
            yield report_nowhere(name, f"neither here nor on {places}")


def report_nowhere(name: str, where: str) -> PreflightFinding:
    """Return the warning about a module that tasks import, and that is nowhere."""
    return PreflightFinding(
        "packages", "warning", f"{name}: tasks import it, and it is {where}", _NOWHERE
    )


def _find_local(
    program: ProgramModules, workers: Mapping[str, PreflightEnvironment], needed: Collection[str]
) -> Iterator[PreflightFinding]:
    """Yield one finding for local modules that the same places lack, or have otherwise."""
    absent: dict[tuple[str, bool], list[LocalModule]] = {}
    other: dict[str, dict[LocalModule, str]] = {}
    for module in program.local:
        if places := _find_places(workers, module.name, _is_absent):
            absent.setdefault((places, module.name in needed), []).append(module)
        if differences := _find_differences(module, workers):
            first = next(iter(differences.values()))
            other.setdefault(join_places(differences), {})[module] = first
    for (places, certain), modules in absent.items():
        text = f"{describe_modules(modules)}: absent on {places}{', where tasks need it' * certain}"
        yield PreflightFinding(MODULES, "fault" if certain else "warning", text, _SYNC)
    for places, different in other.items():
        text = f"{describe_modules(different)}: other files of these names are on {places}"
        text += f": {', '.join(different.values())}"
        yield PreflightFinding(MODULES, "warning", text, _SYNC)


def _list_unknown(
    program: ProgramModules, where: str, needed: Collection[str]
) -> Iterator[PreflightFinding]:
    """Yield a warning on local modules that tasks need; whether they use others is unknown, too."""
    required = [module for module in program.local if module.name in needed]
    others = [module for module in program.local if module.name not in needed]
    if required:
        names = describe_modules(required)
        text = f"{names}: files of this machine that tasks need, and which {where} may lack"
        yield PreflightFinding(MODULES, "warning", text, _SYNC)
    if others:
        text = f"it cannot be known before the start whether {where} has {describe_modules(others)}"
        yield PreflightFinding(MODULES, "unchecked", text)


def report_absent(program: ProgramModules, absent: Collection[str]) -> PreflightFinding | None:
    """Return a warning on local modules that a worker lacks, as it has answered; else None."""
    modules = [module for module in program.local if module.name in absent]
    if not modules:
        return None
    return PreflightFinding(
        MODULES, "warning", f"{describe_modules(modules)}: absent on the workers", _SYNC
    )


def describe_modules(modules: Iterable[LocalModule]) -> str:
    """Return the names and paths of modules."""
    return ", ".join(f"{module.name} ({module.path})" for module in modules)


def _is_absent(digest: str | None) -> bool:
    return digest is None


def _find_differences(
    module: LocalModule, workers: Mapping[str, PreflightEnvironment]
) -> dict[str, str]:
    """Return the places that have the module with other source files, with the first of them."""
    return {
        place: difference
        for place, environment in workers.items()
        if environment.modules.get(module.name) is not None
        and (difference := _compare(module.sources, environment.sources.get(module.name, {})))
    }


def _compare(mine: Mapping[str, str], others: Mapping[str, str]) -> str:
    """Return the first difference of source files; empty if those that can be read are equal."""
    for name in sorted({*mine, *others}):
        if name not in others:
            return f"{name} is missing there"
        if name not in mine:
            return f"{name} is only there"
        if mine[name] and others[name] and mine[name] != others[name]:
            return f"{name} differs"
    return ""


def _find_places(
    workers: Mapping[str, PreflightEnvironment], name: str, matches: Callable[[str | None], bool]
) -> str:
    """Return the places whose digest of a module matches, as text; empty if there are none."""
    return join_places(
        place
        for place, environment in workers.items()
        if name in environment.modules and matches(environment.modules[name])
    )

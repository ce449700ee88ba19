"""What the checks of an engine need to know besides the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from hyperplane.guard.preflight.environment import EnvironmentRequest
from hyperplane.guard.preflight.paths import new_probe_name
from hyperplane.guard.preflight.program_modules import ProgramModules


@dataclass(frozen=True)
class PreflightRequest:
    """The program and the data of a plan that is checked.

    Parameters
    ----------
    program : ProgramModules
        Modules that the program uses.
    needed : frozenset of str
        Modules that its tasks certainly need.
    inputs : tuple of str
        Local paths that tasks read.
    output_folder : str or None
        Folder of this machine in which tasks write; None without one.
    sync : bool
        Whether local modules are shipped to the workers.
    """

    program: ProgramModules = field(default_factory=ProgramModules)
    needed: frozenset[str] = frozenset()
    inputs: tuple[str, ...] = ()
    output_folder: str | None = None
    sync: bool = False

    @cached_property
    def _marker(self) -> Path | None:
        folder = self.output_folder
        return Path(folder, new_probe_name()) if folder else None

    def remove_marker(self) -> None:
        """Remove the file of :meth:`for_environment`, whose check may not have ended in time."""
        if self._marker:
            with suppress(OSError):
                self._marker.unlink(missing_ok=True)

    def for_modules(
        self, spill: str | None = None, paths: Sequence[str] = ()
    ) -> EnvironmentRequest:
        """Return the request for an environment with the modules of the program."""
        local = () if self.sync else tuple(module.name for module in self.program.local)
        names = *self.program.names, *self.program.absent
        return EnvironmentRequest(names, spill, paths, local)

    @contextmanager
    def for_environment(self, spill: str | None) -> Iterator[tuple[EnvironmentRequest, str]]:
        """Yield the request for an environment, and the path of a new file in the output folder.

        Where the output folder is shared, the file exists, too. The path is empty without a folder,
        and if the folder cannot be written, which another check reports.
        """
        marker = ""
        if self._marker:
            with suppress(OSError):
                self._marker.touch(exist_ok=False)
                marker = str(self._marker)
        paths = [*self.inputs, *([marker] if marker else [])]
        try:
            yield self.for_modules(spill, tuple(paths)), marker
        finally:
            self.remove_marker()

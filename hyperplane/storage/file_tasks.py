"""Task that saves an object as one file; see :mod:`~hyperplane.storage.save_tasks`."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from dask.delayed import Delayed

from hyperplane.core.dask_internals.tasks import DataNode
from hyperplane.objectstore.locations import Store
from hyperplane.objectstore.save_target import Target
from hyperplane.storage.output_reports import report_output
from hyperplane.storage.request import SaveRequest
from hyperplane.storage.result import SaveResult
from hyperplane.storage.save_tasks import OutputTask, delay
from hyperplane.storage.single_file import save_file


@dataclass(frozen=True)
class FileSaver(OutputTask):
    """Function of the task that saves an object as one file.

    Parameters
    ----------
    request : SaveRequest
        The save.
    reported : bool
        Whether the file is reported to the job of whose step the process is a part.
    """

    request: SaveRequest
    reported: bool = True

    def __call__(self, obj: Any) -> SaveResult:
        """Save the object."""
        began = time.monotonic()
        result = save_file(obj, self.request)
        if self.reported:
            report_output(self.request, result, folder=False)
        return replace(result, seconds=time.monotonic() - began)

    def redirect(self, folder: str) -> Any:
        """See :class:`OutputTask`."""
        store, name = Store("file", "file:///", {}), self.request.target.name
        target = Target(store, str(Path(folder, name)))
        return FileSaver(replace(self.request, target=target, mode="overwrite"), reported=False)


def delay_file(obj: Any, request: SaveRequest) -> Delayed:
    """Return the save of an object as one file."""
    token = token_hex(16)
    key = f"object-{token}"
    return delay("save-file", token, FileSaver(request), Delayed(key, {key: DataNode(key, obj)}))

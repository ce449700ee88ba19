"""Find executed notebooks that would replace a file of the pipeline, or each other."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, NamedTuple

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.message_formatting import format_value

#: Name of the notebook of a chunk; ``step_command`` adds the number.
_CHUNK = re.compile(r"(.*)-(\d{5,9})(\.[^.]*)?")


class _Output(NamedTuple):
    """The executed notebook of a step, or those of its chunks."""

    step: int
    text: str
    path: str
    chunks: int


class _Files:
    """Files by what would replace them: their path, another name, or the number of a chunk."""

    def __init__(self, names: Mapping[str, int | str]) -> None:
        self._names: dict[object, int | str] = {}
        #: Path without the number -> numbers and names of the files.
        self._numbered: dict[str, list[tuple[str, int | str]]] = defaultdict(list)
        for path, name in names.items():
            for key in (path, _identify(path)):
                self._names.setdefault(key, name)
            folder, file = os.path.split(path)
            if parts := _CHUNK.fullmatch(file):
                whole = str(Path(folder, f"{parts[1]}{parts[3] or ''}"))
                self._numbered[whole].append((parts[2], name))

    def find(self, output: _Output) -> int | str | None:
        """Return the name of the first file that an output replaces; None if it replaces none."""
        if not output.chunks:
            keys = (output.path, _identify(output.path))
            return next((self._names[key] for key in keys if key in self._names), None)
        for number, name in self._numbered.get(output.path, ()):
            if int(number) < output.chunks and f"{int(number):05d}" == number:
                return name
        return None


class NotebookOutputs:
    """The executed notebooks of a pipeline.

    Parameters
    ----------
    root : Path
        Folder that paths are relative to.
    steps : sequence of mapping
        The known fields of each step.
    step_paths : sequence of mapping
        For each step, its valid paths relative to the root.
    """

    def __init__(
        self,
        root: Path,
        steps: Sequence[Mapping[str, Any]],
        step_paths: Sequence[Mapping[str, str]],
    ) -> None:
        self._root, self._steps, self._step_paths = root, steps, step_paths
        self._outputs = [
            _Output(index, paths["output_path"], self._resolve(paths["output_path"]), _chunks(step))
            for index, (step, paths) in enumerate(zip(steps, step_paths, strict=True))
            if "output_path" in paths
        ]

    def find_faults(self, shared: Mapping[str, str]) -> list[Fault]:
        """Return the faults of outputs that would replace a file which the pipeline reads.

        ``shared`` are paths of the whole pipeline, relative to the root.
        """
        texts = [*(paths.get("path", "") for paths in self._step_paths), *shared.values()]
        files = _Files({self._resolve(text): text for text in reversed(texts) if text})
        found = ((output, files.find(output)) for output in self._outputs)
        return [self._fault(output, str(text)) for output, text in found if text is not None]

    def describe_shared(self) -> list[str]:
        """Return warnings of steps that write the same executed notebook."""
        writers: dict[tuple[str, bool], list[_Output]] = defaultdict(list)
        for output in self._outputs:
            writers[output.path, output.chunks > 0].append(output)
        groups = list(writers.values())
        wholes = {each.path: index for index, each in enumerate(self._outputs) if not each.chunks}
        files = _Files(wholes)
        for output in self._outputs:
            if output.chunks and (index := files.find(output)) is not None:
                groups.append([output, self._outputs[int(index)]])
        return [self._warning(outputs) for outputs in groups if len(outputs) > 1]

    def _resolve(self, text: str) -> str:
        return os.path.realpath(self._root / text)

    def _fault(self, output: _Output, replaced: str) -> Fault:
        is_own = replaced == self._step_paths[output.step].get("path")
        file = "the notebook" if is_own else f"{replaced}, a file of the pipeline"
        return Fault(
            f"{output.step}.output_path",
            format_value(output.text),
            f"another file than {file}, which the executed copy would replace",
            "leave it out, and the executed notebook is kept with the job",
        )

    def _warning(self, outputs: Iterable[_Output]) -> str:
        writers = list(outputs)
        names = ", ".join(repr(str(self._steps[each.step].get("name"))) for each in writers)
        file = os.path.relpath(writers[-1].path, os.path.realpath(self._root))
        return (
            f"the steps {names} write the same executed notebook, {file}; the one that ends last "
            "replaces the others"
        )


def _chunks(step: Mapping[str, Any]) -> int:
    """Return the number of chunks of a step; 0 if it has none."""
    values = step.get("foreach")
    number = len(values) if isinstance(values, Sized) else step.get("chunks")
    return number if isinstance(number, int) else 0


def _identify(path: str) -> object:
    """Return the identity of a file, or its path if it does not exist."""
    try:
        status = Path(path).stat()
    except OSError:
        return path
    return status.st_dev, status.st_ino

"""Read small YAML or JSON files that options name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.yaml_tree import YamlError, YamlMapping, read_tree

#: Maximum bytes of a file.
MAX_BYTES = 1 << 20


def read_yaml_mapping(path: Path, option: str, allowed: str, faults: list[Fault]) -> YamlMapping:
    """Return the mapping of a YAML or JSON file; add its faults, and return an empty one.

    Parameters
    ----------
    path : Path
        The file.
    option : str
        Name of the option in faults.
    allowed : str
        Description of valid files.
    faults : list of Fault
        Gets the faults.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"the file has more than {MAX_BYTES} bytes")
        tree, found = read_tree(data.decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        advice = " ".join(str(error).split())[:200]
        faults.append(Fault(option, str(path), allowed, advice))
        return YamlMapping(1)
    except YamlError as error:
        tree, found = YamlMapping(1), [error.fault]
    faults += [  # their place is the line, or 0
        replace(each, where=option, source=f"{path}:{each.where}".removesuffix(":0"))
        for each in found
    ]
    if not isinstance(tree, YamlMapping):
        faults.append(Fault(option, str(path), allowed))
        return YamlMapping(1)
    return tree

"""Folders of SavedModels of TensorFlow, which a registry stores as one archive."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

#: File that each such folder has, and suffix of the archive of a folder.
GRAPH_FILE, SUFFIX = "saved_model.pb", ".savedmodel"
_FOLDERS = ("variables", "assets", "assets.extra")
#: A fixed time stamp, so that equal folders give equal bytes.
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


def is_part(name: str) -> bool:
    """Return whether a file, by its path in the folder, belongs to the SavedModel.

    Examples
    --------
    >>> [is_part(each) for each in ("saved_model.pb", "variables/variables.index", "notes.txt")]
    [True, True, False]
    """
    folder, slash, _ = name.partition("/")
    return folder in _FOLDERS if slash else name.endswith(".pb")


def pack_folder(files: Mapping[str, bytes]) -> bytes:
    """Return the archive of the files of a folder; equal files give equal bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _FIXED_TIME), files[name])
    return packed.getvalue()

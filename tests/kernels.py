"""Execute notebooks in tests."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from nbclient import NotebookClient
from traitlets.config import Config


def execute(notebook: Any, folder: Path) -> None:
    """Run all cells of a notebook in a folder, however long the start of a kernel takes.

    Its kernel listens on sockets of a folder. Ports are chosen before the kernel starts, and it
    ends if another process has taken one of them meanwhile.
    """
    with tempfile.TemporaryDirectory(prefix="k-") as place:  # paths of sockets have to be short
        sockets = {
            "transport": "ipc",
            "ip": f"{place}/k",
            "connection_file": f"{place}/connection.json",
        }
        NotebookClient(
            notebook,
            timeout=280,
            startup_timeout=280,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
            config=Config({"KernelManager": sockets}),
        ).execute()

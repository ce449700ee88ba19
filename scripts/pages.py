"""Writes the parts of the documentation that come from the code: ``make pages``.

Tables stand in the pages between ``<!-- generated: name -->`` and ``<!-- end -->``, pictures in
``docs/_static``. A test compares the tables and the text of the terminal with the code.
"""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hyperplane
from hyperplane.units import format_number

DOCS = Path(__file__).resolve().parents[1] / "docs"
STATIC = DOCS / "_static"
COMMAND = ["size", "100GB", "--operation", "groupby"]
COLUMNS = 100


def pools_table() -> str:
    """All pools as a Markdown table."""
    lines = [
        "| pool | alias | cores | nominal | GB | nominal | layout |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for pool in hyperplane.pools().values():
        worker = hyperplane.fit_workers(pool)
        numbers = (pool.allocatable_cores, pool.cores, pool.allocatable_ram_gb, pool.ram_gb)
        cells = [f"`{pool.name}`", f"`{pool.alias}`", *map(format_number, numbers), str(worker)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cli_pages() -> str:
    """Every command with its arguments and options."""
    import typer.main

    from hyperplane.cli import app

    group: Any = typer.main.get_command(app)
    return "\n\n".join(_commands("hyperplane", group))


def _commands(path: str, command: Any) -> Iterator[str]:
    for name, found in command.commands.items():
        if hasattr(found, "commands"):
            yield from _commands(f"{path} {name}", found)
        else:
            yield _command(f"{path} {name}", found)


def _command(path: str, command: Any) -> str:
    parts = [f"## `{path}`", _prose(command.help or "")]
    options = [one for one in command.params if one.param_type_name == "option"]
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    if arguments:
        parts.append(_rows("argument", [(_argument(one), _prose(one.help)) for one in arguments]))
    if options:
        parts.append(_rows("option", [(_option(one), _prose(one.help)) for one in options]))
    return "\n\n".join(parts)


def _argument(argument: Any) -> str:
    name = argument.name.upper()
    return f"`{name}`" if argument.required else f"`[{name}]`"


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = (option.metavar or "VALUE").replace("|", "` or `")
    return names if option.is_flag else f"{names} `{value}`"


def _prose(text: str | None) -> str:
    return " ".join(textwrap.dedent(text or "").split()).replace("|", "\\|")


def _rows(title: str, rows: list[tuple[str, str]]) -> str:
    return "\n".join([f"| {title} | |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])


GENERATED = {"reference/pools.md": ("pools", pools_table), "reference/cli.md": ("cli", cli_pages)}


def with_generated(page: str) -> str:
    """The text of a page with its generated part as the code says it now."""
    name, make = GENERATED[page]
    text = (DOCS / page).read_text(encoding="utf-8")
    begin, end = f"<!-- generated: {name} -->\n\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}{make()}\n\n{end}{rest.partition(end)[2]}"


def terminal_text() -> str:
    """What the command of the terminal picture prints to a terminal, with its colours."""
    program = Path(sys.executable).with_name("hyperplane")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(  # noqa: S603 - the program is ours
        [program, *COMMAND],
        env={**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"},
        stdout=theirs,
        stdin=subprocess.DEVNULL,
    )
    os.close(theirs)
    with os.fdopen(ours, encoding="utf-8", newline="") as terminal:
        lines = []
        with contextlib.suppress(OSError):  # the end of a terminal is an error to Linux
            lines.extend(iter(terminal.readline, ""))
    if process.wait():
        raise SystemExit("".join(lines))
    return "".join(lines).replace("\r\n", "\n")


def terminal_svg() -> str:
    """The command and its output as a picture of a terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), "hyperplane " + " ".join(COMMAND)))
    console.print(Text.from_ansi(terminal_text().rstrip() + "\n"))
    drawn = console.export_svg(title="hyperplane", unique_id="size")
    # No reader's browser shall fetch a font from elsewhere to see this picture.
    drawn = re.sub(r"@font-face \{.*?\}\n", "", drawn, flags=re.DOTALL)
    return drawn.replace("Fira Code, monospace", "DejaVu Sans Mono, Menlo, Consolas, monospace")


def draw_advice(file: Path) -> None:
    """The picture of ``advice.plot()``."""
    import matplotlib

    matplotlib.use("agg")
    axes = hyperplane.size_cluster("100GB", "groupby").plot()
    axes.figure.savefig(file, dpi=144, metadata={"Software": None})


def main() -> None:
    """Write everything."""
    STATIC.mkdir(exist_ok=True)
    for page in GENERATED:
        (DOCS / page).write_text(with_generated(page), encoding="utf-8")
    (STATIC / "size.svg").write_text(terminal_svg(), encoding="utf-8")
    draw_advice(STATIC / "advice.png")


if __name__ == "__main__":
    main()

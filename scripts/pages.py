"""Write the generated parts of the documentation: ``make pages``.

Tables are between ``<!-- generated: name -->`` and ``<!-- end -->`` in the pages, pictures are in
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
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import hyperplane
from hyperplane import config
from hyperplane.clusters import registry as engines
from hyperplane.core.units import format_number
from hyperplane.forecasts.memory_picture import draw_memory
from hyperplane.forecasts.memory_series import SeriesRecorder
from hyperplane.forecasts.simulate import Simulation
from hyperplane.forecasts.simulated_memory import ProcessBaseline
from hyperplane.forecasts.unit_cost import UnitCost
from hyperplane.formats import base, registry

DOCS = Path(__file__).resolve().parents[1] / "docs"
STATIC = DOCS / "_static"
COMMAND = ["size", "100GB", "--operation", "groupby"]
COLUMNS = 100


def pools_table() -> str:
    """Return all pools as a Markdown table."""
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


#: How-to pages of engines that are not named ``use-<engine>.md``.
_PAGES = {
    "cuda": "use-gpus.md",
    "ray:local": "start-ray.md",
    "ray:ssh": "start-ray.md",
    "ray:slurm": "start-ray.md",
    "ray:kubernetes": "start-ray.md",
    "spark:local": "use-spark.md",
    "spark:ssh": "use-spark.md",
    "spark:slurm": "use-spark.md",
    "spark:kubernetes": "use-spark.md",
}


def engines_table(folder: str) -> str:
    """Return the engines with what they start and their pages, for a page beside ``folder``."""
    lines = ["| engine | | |", "|---|---|---|"]
    for name in engines.ENGINES.built_in:
        page = _PAGES.get(name, f"use-{name}.md")
        link = f"[how to]({folder}/{page})" if (DOCS / "how-to" / page).exists() else ""
        lines.append(f"| `{name}` | {_summary(type(engines.load(name)))} | {link} |")
    return "\n".join(lines)


def formats_table() -> str:
    """Return the file formats with their suffixes and the functions that support them."""
    functions = [
        ("`dataframe.read`", base.SupportsRead),
        ("`shard_rows`", base.SupportsRowShards),
        ("`size_cluster`", base.SupportsSize),
        ("`save` of tables", base.SupportsSave),
        ("`save` of bags", base.SupportsSaveRecords),
    ]
    titles = ["format", "", "files that are read", "names for `save`"]
    titles += [title for title, _ in functions]
    lines = ["| " + " | ".join(titles) + " |", "|---" * 4 + "|" + ":-:|" * len(functions)]
    for name in registry.FORMATS.built_in:
        file_format = registry.load(name)
        cells = [f"`{name}`", _summary(type(file_format))]
        for suffixes in (file_format.suffixes, getattr(file_format, "saved_suffixes", ())):
            cells.append(", ".join(f"`{suffix}`" for suffix in suffixes))
        cells += ["yes" if isinstance(file_format, protocol) else "" for _, protocol in functions]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def weights_table() -> str:
    """Return the weights of operations, with the memory and the operations of each."""
    rules = config.sizing_rules()
    lines = ["| weight | memory | operations |", "|---|---|---|"]
    for weight, multiplier in rules.multipliers.model_dump().items():
        names = ", ".join(name for name, its in rules.operations.items() if its == weight)
        lines.append(f"| `{weight}` | data x {format_number(multiplier)} | {names} |")
    return "\n".join(lines)


def _summary(documented: type) -> str:
    """Return the first line of a docstring without roles of Sphinx and without its final point."""
    line = (documented.__doc__ or "").strip().splitlines()[0].rstrip(".")
    line = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", line)
    return line.replace("``", "`").replace("|", "\\|")


def cli_pages() -> str:
    """Return a Markdown section for each command with its arguments and options."""
    import typer.main

    from hyperplane.cli import app

    group: Any = typer.main.get_command(app)
    return "\n\n".join(_commands("hyperplane", group))


def _commands(path: str, command: Any) -> Iterator[str]:
    for name, subcommand in command.commands.items():
        if hasattr(subcommand, "commands"):
            yield from _commands(f"{path} {name}", subcommand)
        else:
            yield _command(f"{path} {name}", subcommand)


def _command(path: str, command: Any) -> str:
    parts = [f"## `{path}`", _prose(command.help or "")]
    options = [param for param in command.params if param.param_type_name == "option"]
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    if arguments:
        parts.append(
            _rows("argument", [(_argument(param), _prose(param.help)) for param in arguments])
        )
    if options:
        parts.append(_rows("option", [(_option(param), _prose(param.help)) for param in options]))
    return "\n\n".join(parts)


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return f"`{name}`" if argument.required else f"`[{name}]`"


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = (option.metavar or "VALUE").replace("|", "` or `")
    return names if option.is_flag else f"{names} `{value}`"


def _prose(text: str | None) -> str:
    return " ".join(textwrap.dedent(text or "").split()).replace("|", "\\|")


def _rows(title: str, rows: list[tuple[str, str]]) -> str:
    return "\n".join([f"| {title} | |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])


def dask_ml_table() -> str:
    """Return the results of dask-ml on the oldest and the newest stack, as the tests recorded."""
    sys.path.insert(0, str(DOCS.parent / "tests"))
    from ml.dask_ml_results import make_table

    return make_table()


def cuml_table() -> str:
    """Return the classes of scikit-learn that have an equivalent in cuML."""
    from hyperplane.ml.gpu_estimators import CLASSES, DISTRIBUTED_CLASSES

    lines = ["| scikit-learn | in `cuml` | also in `cuml.dask` |", "|---|---|---|"]
    for module, names in CLASSES.items():
        cells = [
            ", ".join(f"`{name}`" for name in each)
            for each in (names, DISTRIBUTED_CLASSES.get(module, ()))
        ]
        lines.append(f"| `sklearn.{module}` | {' | '.join(cells)} |")
    return "\n".join(lines)


#: Page, in docs -> name of its generated part, and the function that returns it.
GENERATED: dict[str, tuple[str, Callable[[], str]]] = {
    "../README.md": ("engines", partial(engines_table, "docs/how-to")),
    "index.md": ("engines", partial(engines_table, "how-to")),
    "explanation/architecture.md": ("engines", partial(engines_table, "../how-to")),
    "how-to/size-a-job.md": ("weights", weights_table),
    "reference/pools.md": ("pools", pools_table),
    "reference/formats.md": ("formats", formats_table),
    "reference/cli.md": ("cli", cli_pages),
    "reference/dask-ml.md": ("dask-ml", dask_ml_table),
    "reference/ml.md": ("cuml", cuml_table),
}


def with_generated(page: str) -> str:
    """Return the text of a page with its generated part updated."""
    name, make = GENERATED[page]
    text = (DOCS / page).read_text(encoding="utf-8")
    begin, end = f"<!-- generated: {name} -->\n\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}{make()}\n\n{end}{rest.partition(end)[2]}"


def terminal_text() -> str:
    """Return the output of the command of the terminal picture, with its colors."""
    program = Path(sys.executable).with_name("hyperplane")
    controller, terminal_end = pty.openpty()
    process = subprocess.Popen(  # noqa: S603 - a fixed command
        [program, *COMMAND],
        env={**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"},
        stdout=terminal_end,
        stdin=subprocess.DEVNULL,
    )
    os.close(terminal_end)
    with os.fdopen(controller, encoding="utf-8", newline="") as terminal:
        lines = []
        with contextlib.suppress(OSError):  # Linux reports the end of a terminal as an error
            lines.extend(iter(terminal.readline, ""))
    if process.wait():
        raise SystemExit("".join(lines))
    return "".join(lines).replace("\r\n", "\n")


def terminal_svg() -> str:
    """Return an SVG image of a terminal with the command and its output."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), "hyperplane " + " ".join(COMMAND)))
    console.print(Text.from_ansi(terminal_text().rstrip() + "\n"))
    image = console.export_svg(title="hyperplane", unique_id="size")
    # Remove web fonts, so that browsers do not load them from another server.
    image = re.sub(r"@font-face \{.*?\}\n", "", image, flags=re.DOTALL)
    return image.replace("Fira Code, monospace", "DejaVu Sans Mono, Menlo, Consolas, monospace")


def draw_advice(file: Path) -> None:
    """Write the picture of ``advice.plot()``."""
    import matplotlib

    matplotlib.use("agg")
    axes = hyperplane.size_cluster("100GB", "groupby").plot()
    axes.figure.savefig(file, dpi=144, metadata={"Software": None})


def forecast_svg() -> str:
    """Return the picture of a forecast: a shuffle, whose rows wait for a barrier."""
    units = [
        UnitCost(0, part, (), 0.0, 150e6, 2.0, heap=90e6, waiting=30e6, adds={"shuffle": 32e6})
        for part in range(48)
    ]
    units.append(UnitCost(1, 48, tuple(range(48)), 0.0, 0.0, 0.0, ends=("shuffle",)))
    units += [
        UnitCost(2, 49 + part, (48,), 4e6, 180e6, 3.0, takes=(("shuffle", part / 24),))
        for part in range(24)
    ]
    targets, memory = range(49, 73), ProcessBaseline(160e6, 40e6, 1e9)
    seconds = Simulation(units, targets, memory, 3, 2).run().seconds
    recorder = SeriesRecorder(3, seconds)
    Simulation(units, targets, memory, 3, 2, recorder=recorder).run()
    layout = "3 worker processes x 2 threads"
    return draw_memory(recorder.list_series(), 2e9, 1.4e9, layout)


def main() -> None:
    """Write all generated tables and pictures."""
    STATIC.mkdir(exist_ok=True)
    for page in GENERATED:
        (DOCS / page).write_text(with_generated(page), encoding="utf-8")
    (STATIC / "size.svg").write_text(terminal_svg(), encoding="utf-8")
    (STATIC / "forecast.svg").write_text(forecast_svg() + "\n", encoding="utf-8")
    draw_advice(STATIC / "advice.png")


if __name__ == "__main__":
    main()

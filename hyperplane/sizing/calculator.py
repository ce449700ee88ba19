"""The public doors of the calculator: how large a cluster, which pool, which layout."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hyperplane import config
from hyperplane.errors import Fault, RequestError
from hyperplane.sizing import fit
from hyperplane.sizing.advise import Answer, Basis, Option, Question, Tasks, answer
from hyperplane.sizing.measure import Measured, measure
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.worker import WorkerSpec
from hyperplane.units import bytes_to_gb, format_bytes, format_number, gb_to_bytes, plural

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class SizingAdvice:
    """How large a cluster to start, and why.

    Nodes and memory are those of one cluster. When the data is cut into pieces
    (``pieces > 1``) that is the cluster for one piece; each piece is a job of its own.

    Parameters
    ----------
    question : Question
        What was asked.
    found : Answer
        What the rules say.
    measured : Measured
        The size of the data and where it comes from.
    """

    question: Question
    found: Answer
    measured: Measured

    @property
    def data_gb(self) -> float:
        """Uncompressed data of all pieces, in GB."""
        return bytes_to_gb(self.measured.size)

    @property
    def memory_gb(self) -> float:
        """Memory that one cluster needs, in GB."""
        return bytes_to_gb(self.found.memory)

    @property
    def given_gb(self) -> float:
        """Memory that the workers of one cluster really have, in GB."""
        return bytes_to_gb(self.found.option.total_ram)

    @property
    def pool(self) -> PoolSpec:
        """The kind of node to use."""
        return self.found.option.pool

    @property
    def nodes(self) -> int:
        """How many nodes one cluster needs."""
        return self.found.option.nodes

    @property
    def worker(self) -> WorkerSpec:
        """The layout of worker processes on each node."""
        return self.found.option.worker

    @property
    def pieces(self) -> int:
        """Into how many jobs the data is best cut; 1 means not at all."""
        return self.found.pieces

    @property
    def reasons(self) -> tuple[str, ...]:
        """One line for each choice."""
        return self.found.reasons

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to beware of, one line each, starting with the name of the rule."""
        return self.found.warnings

    @property
    def alternatives(self) -> tuple[Option, ...]:
        """The other pools, each with its nodes and totals."""
        return self.found.alternatives

    @property
    def cost_per_hour(self) -> float | None:
        """Price of the nodes of one cluster for an hour, if the pool carries one."""
        return self.found.option.cost_per_hour

    def as_arguments(self) -> dict[str, Any]:
        """The advice as arguments of ``initialize_cluster``."""
        worker = {key: value for key, value in self.worker.to_dict().items()}
        return {"num_workers": self.nodes, "pool": self.pool.name, **worker}

    def start(self, **options: Any) -> tuple[Client, Cluster]:
        """Start the cluster for one piece.

        Parameters
        ----------
        **options
            Further arguments of ``initialize_cluster``, or others in place of the advised ones.

        Returns
        -------
        client : distributed.Client
        cluster : distributed.deploy.cluster.Cluster
        """
        from hyperplane.cluster import initialize_cluster

        return initialize_cluster(**{**self.as_arguments(), **options})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw memory needed against memory given, for each pool.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure without it.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        MissingPackage
            When matplotlib is not installed (extra ``plot``).
        """
        from hyperplane.sizing.picture import draw

        return draw(self, ax)

    def rows(self) -> list[tuple[str, str]]:
        """What the advice shows, as labels and texts."""
        option = self.found.option
        cost = self.cost_per_hour
        return [
            ("data", f"{format_bytes(self.measured.size)} ({self.measured.how})"),
            ("memory", f"{format_bytes(self.found.memory)} needed, {format_bytes(option.total_ram)} given"),
            ("cluster", f"{plural(self.nodes, 'node')} of pool {self.pool}"),
            ("worker", f"{self.worker} on each node, cores_per_worker {format_number(self.worker.cores_per_worker)}"),
            ("total", f"{plural(self.nodes * self.worker.nprocs, 'worker process')}, {plural(option.total_threads, 'thread')}"),
            *([("pieces", f"{self.pieces}, each on a cluster like this")] if self.pieces > 1 else []),
            *([("cost", f"{format_number(cost)} per hour")] if cost is not None else []),
            *(("why", reason) for reason in self.reasons),
            *(("warning", warning) for warning in self.warnings),
            ("instead", "; ".join(
                f"{plural(other.nodes, 'node')} of {other.pool.name} ({format_bytes(other.total_ram)})"
                for other in self.alternatives
            )),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The advice as JSON-able values."""
        return {
            "data_gb": self.data_gb,
            "measured": self.measured.how,
            "operation": self.question.operation,
            "weight": self.found.weight,
            "multiplier": self.found.multiplier,
            "tasks": self.question.tasks,
            "basis": self.question.basis,
            "memory_gb": self.memory_gb,
            "given_gb": self.given_gb,
            "pieces": self.pieces,
            **self.found.option.to_dict(),
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
            "alternatives": [other.to_dict() for other in self.alternatives],
        }

    def __str__(self) -> str:
        return "\n".join(f"{label:<8} {text}" for label, text in self.rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for label, text in self.rows()
        )
        return f"<table>{rows}</table>"


def size_cluster(
    data: Any,
    operation: str = "medium",
    tasks: Tasks = "light",
    *,
    basis: Basis = "allocatable",
    pool: str | PoolSpec | None = None,
    moves_data: bool = True,
    pieces: int | None = None,
) -> SizingAdvice:
    """How large a cluster a job needs.

    Parameters
    ----------
    data : str, number, tuple, path or collection
        The uncompressed data: ``"100GB"``; a number of GB; ``(bytes, "B")``; a path, glob or fsspec
        URL, which is measured; or a Dask, pandas, NumPy or xarray collection.
    operation : str
        ``"light"``, ``"medium"`` or ``"heavy"``, or what people call it: ``"filter"``, ``"groupby"``,
        ``"join"``, ``"set_index"`` and others in ``config/sizing.yaml``.
    tasks : {"light", "heavy"}
        ``"heavy"`` for a job of many tasks, which wants cores.
    basis : {"allocatable", "nominal"}
        Divide by what a node really gives, or by what its name says (the rule of thumb as
        published).
    pool : str or PoolSpec, optional
        Use this pool instead of the one that the rules choose.
    moves_data : bool
        False for work that neither sorts nor shuffles nor moves large pieces.
    pieces : int, optional
        Cut the data into so many jobs, instead of what the rules choose.

    Returns
    -------
    SizingAdvice
        Memory, pool, nodes, worker layout, reasons, warnings and alternatives.

    Raises
    ------
    RequestError
        With every fault of the call.

    Notes
    -----
    Memory is data x 4 (light), x 8 (medium) or x 48 (heavy), and nodes are memory / memory of
    a node: the sizing advice that the platform's documentation publishes. Its figures mix two
    bases: 25 nodes of 32_32 for 800 GB divides by the nominal 32 GB, 8 nodes of 16_128 by the
    allocatable 110 GB. See ``docs/explanation/sizing.md``.

    Examples
    --------
    >>> advice = size_cluster("100GB", "groupby", tasks="heavy")
    >>> advice.memory_gb, advice.pool.name, advice.nodes
    (800.0, '32_32', 30)
    >>> size_cluster("100GB", "groupby", tasks="heavy", basis="nominal").nodes
    25
    """
    found = [
        Fault(name, repr(value), " or ".join(repr(choice) for choice in allowed))
        for name, value, allowed in (
            ("tasks", tasks, ("light", "heavy")),
            ("basis", basis, ("allocatable", "nominal")),
            ("moves_data", moves_data, (True, False)),
        )
        if value not in allowed
    ]
    if pieces is not None and (isinstance(pieces, bool) or pieces != int(pieces) or pieces < 1):
        found.append(Fault("pieces", repr(pieces), "a whole number of at least 1"))
    rules = config.sizing_rules()
    chosen, measured = None, Measured(1, "")
    try:
        rules.weight(operation)
    except RequestError as error:
        found += error.faults
    try:
        chosen = config.get_pool(pool) if pool is not None else None
    except RequestError as error:
        found += error.faults
    try:
        measured = measure(data)
    except RequestError as error:
        found += error.faults
    if found:
        raise RequestError(found)
    question = Question(measured.size, operation, tasks, basis, chosen, moves_data, pieces)
    return SizingAdvice(question, answer(question, rules, config.pools()), measured)


def fit_workers(
    pool: str | PoolSpec,
    *,
    nprocs: int | None = None,
    nthreads: int | None = None,
    ram_gb_per_proc: float | None = None,
) -> WorkerSpec:
    """A layout of worker processes for one node of a pool.

    Parameters
    ----------
    pool : str or PoolSpec
        The pool, under any of its names.
    nprocs, nthreads : int, optional
        Keep this number and propose the rest.
    ram_gb_per_proc : float, optional
        Keep this memory of a process, in GB, with as many processes as it leaves room for.

    Returns
    -------
    WorkerSpec

    Raises
    ------
    UnknownPool
        When there is no such pool.
    DoesNotFit
        When what is given is more than the pool has.

    Notes
    -----
    Dask's own square-root rule, on the largest number of cores that divides evenly into
    between one and two processes per thread; up to three cores in one process. Dask's rule
    alone gives 47 x 2 on 94 cores. See :mod:`hyperplane.sizing.fit`.

    Examples
    --------
    >>> print(fit_workers("16_16"))
    5 processes x 3 threads x 2.4 GB
    """
    return fit.propose_worker(
        config.get_pool(pool), nprocs=nprocs, nthreads=nthreads, ram_gb_per_proc=ram_gb_per_proc
    )


def closest_pool(cores: float, ram_gb: float, ngpus: int = 0) -> PoolSpec:
    """The smallest pool whose node really has that many cores and that much memory.

    Parameters
    ----------
    cores : float
        Cores that one node must give.
    ram_gb : float
        Memory in GB that one node must give.
    ngpus : int
        GPUs that one node must have.

    Returns
    -------
    PoolSpec

    Raises
    ------
    DoesNotFit
        When no pool is large enough; it names the largest.

    Examples
    --------
    >>> closest_pool(15, 12).name, closest_pool(15, 110).name, closest_pool(4, 4).name
    ('16_16', '16_128', '8_8')
    """
    return fit.smallest_pool(config.pools().values(), cores, gb_to_bytes(ram_gb), ngpus)

"""What units of one class take, from the records of those that were sampled.

For each class the bytes of results, transient memory and time are functions of the bytes of the
inputs. Of units that had computed inputs several times, they are functions of the number of
different pieces of data in them: the result of a sum stays as it is, that of a group-by grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from hyperplane.forecasts.growth import Growth, fit_growth
from hyperplane.forecasts.records import TaskRecord
from hyperplane.forecasts.sample_plan import SampleStep

#: Bytes by which the memory of equal tasks differs.
_NOISE = 5 * 10**6
#: Memory for a result, as a share of its bytes, below which it is a view of an input.
_VIEW = 0.05
_NOTHING = Growth(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class ClassModel:
    """What units of one class take.

    Parameters
    ----------
    of_pieces : bool
        Whether the figures depend on the number of pieces of data instead of bytes.
    output, transient, heap, waiting, seconds, cpu : Growth
        Bytes of the results, bytes of transient memory, those of it that malloc keeps, those that
        it is larger while another partition waits, and times.
    added : float
        Bytes that a unit adds to shuffles, for each byte of its inputs.
    spread : float
        Largest ratio of the transient memory of two units of the same size.
    largest : float
        Largest size that was sampled.
    has_tables : bool
        Whether the units handle tables.
    groups : Growth or None
        Rows of the results, if these have at most some rows for each key of a group-by.
    group_names : tuple of str
        Names of that key; empty if it is that of an operation of Dask.
    rows_per_key : float
        Most rows of a result for each key of all files.
    written : Growth or None
        Bytes of the files that a unit writes.
    block, inputs : Growth
        Bytes of the largest column of a table, and of the inputs.
    shares : tuple of float
        Share of each result in the bytes of all results of a unit.
    pieces : mapping of int to float
        Share of each output partition in the rows of the table that a unit divides.
    in_files : float
        Share of the bytes of the results that are in files instead of memory.
    is_view : bool
        Whether the results take no memory in addition to the inputs.
    held, overlaps : float
        Share of them that is not in the results, but in arrays of which they are views, and share
        that is in several results and in memory once.
    """

    of_pieces: bool
    output: Growth
    transient: Growth
    heap: Growth
    waiting: Growth
    seconds: Growth
    cpu: Growth
    added: Mapping[str, Growth] = field(default_factory=dict)
    spread: float = 1.0
    largest: float = 0.0
    has_tables: bool = False
    groups: Growth | None = None
    group_names: tuple[str, ...] = ()
    rows_per_key: float = 1.0
    written: Growth | None = None
    block: Growth = _NOTHING
    inputs: Growth = _NOTHING
    shares: tuple[float, ...] = ()
    pieces: Mapping[int, float] = field(default_factory=dict)
    in_files: float = 0.0
    is_view: bool = False
    held: float = 0.0
    overlaps: float = 0.0

    def find_share(self, position: int, results: int) -> float:
        """Return the share of one of several results in their bytes."""
        return self.shares[position] if results == len(self.shares) else 1 / results


def find_heap(record: TaskRecord) -> float:
    """Return the memory that malloc has kept after a task, of that which was no result."""
    results = sum(record.outputs) - record.overlaps
    return float(max(0, record.after - record.before - results))


def fit_class(
    samples: Sequence[tuple[SampleStep, TaskRecord, float]], weights: Mapping[int, float]
) -> ClassModel:
    """Return the model of a class from its steps, their records and what they needed."""
    # A second run with as many pieces as the first, because each input has all of them, does not
    # show a growth. The inputs have their true sizes in both.
    of_pieces = len({len(step.leaves) for step, *_ in samples if step.inputs}) > 1 and any(
        step.narrow for step, *_ in samples
    )
    sizes = [
        float(
            len(step.leaves)
            if of_pieces
            else weights.get(step.unit, 0.0) + record.inputs + record.taken
        )
        for step, record, _ in samples
    ]
    records = [record for _, record, _ in samples]
    # With a single piece of data several times, the inputs can be smaller than with all of them.
    most = max(record.inputs for record in records)
    scales = [most / each.inputs if of_pieces and each.inputs else 1.0 for each in records]
    needs = [need * scale for (_, _, need), scale in zip(samples, scales, strict=True)]
    heaps = [find_heap(each) * scale for each, scale in zip(records, scales, strict=True)]
    wide = [
        (size, need)
        for (step, *_), size, need in zip(samples, sizes, needs, strict=True)
        if not step.narrow
    ]
    at = max(sizes)
    scaled = [_NOISE + (need * at / size if size else need) for size, need in wide]
    outputs = [float(sum(record.outputs)) for record in records]
    names = set().union(*(record.added for record in records))
    return ClassModel(
        of_pieces=of_pieces,
        inputs=fit_growth([(x, each.inputs) for x, each in zip(sizes, records, strict=True)]),
        output=fit_growth(list(zip(sizes, outputs, strict=True))),
        transient=fit_growth(list(zip(sizes, needs, strict=True)), largest=True),
        # The largest: without other data above it, malloc returns a large end of its memory.
        heap=fit_growth(list(zip(sizes, heaps, strict=True)), largest=True),
        block=fit_growth([(x, each.block) for x, each in zip(sizes, records, strict=True)]),
        # A thread that has read a partition begins to read the next one, until the scheduler has
        # sent the tasks that follow. Then it runs each next task of both partitions in turn.
        waiting=fit_growth(
            [
                (x, 0.0 if step.inputs else each.waiting)
                for x, (step, each, _) in zip(sizes, samples, strict=True)
            ]
        ),
        seconds=fit_growth([(x, each.seconds) for x, each in zip(sizes, records, strict=True)]),
        cpu=fit_growth([(x, each.cpu) for x, each in zip(sizes, records, strict=True)]),
        added={
            name: fit_growth(
                [(x, each.added.get(name, 0)) for x, each in zip(sizes, records, strict=True)]
            )
            for name in names
        },
        spread=max(scaled) / min(scaled),
        largest=max(sizes),
        has_tables=any(record.has_tables for record in records),
        groups=fit_growth([(x, each.groups) for x, each in zip(sizes, records, strict=True)])
        if all(record.groups for record in records)
        else None,
        group_names=records[0].group_names,
        rows_per_key=records[0].rows_per_key,
        written=fit_growth([(x, each.written) for x, each in zip(sizes, records, strict=True)])
        if any(record.written for record in records)
        else None,
        shares=_find_shares([record.outputs for record in records]),
        pieces=_find_pieces([record.pieces for record in records]),
        in_files=sum(each.filed for each in records) / max(1.0, sum(outputs)),
        is_view=sum(outputs) > 0
        and all(need <= _VIEW * size for (*_, need), size in zip(samples, outputs, strict=True))
        and not any(each.filed for each in records),
        held=sum(each.held for each in records) / max(1.0, sum(outputs)),
        overlaps=sum(each.overlaps for each in records) / max(1.0, sum(outputs)),
    )


def _find_shares(outputs: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """Return the share of each result in all, of the units that have the most results."""
    most = max(map(len, outputs))
    equal = [sizes for sizes in outputs if len(sizes) == most]
    totals = [sum(sizes) for sizes in zip(*equal, strict=True)]
    return tuple(total / sum(totals) for total in totals) if sum(totals) else ()


def _find_pieces(divided: Sequence[Mapping[int, int]]) -> dict[int, float]:
    """Return the share of each piece in a table, as it is in most of those that were divided.

    The median, as of peer-to-peer shuffles: a frequent key is in most tables. What then remains is
    divided evenly. In a sorted table each input has rows of a few outputs only.
    """
    numbers = sorted(set().union(*divided))
    shares = {
        number: median(sizes.get(number, 0) / max(1, sum(sizes.values())) for sizes in divided)
        for number in numbers
    }
    even = max(0.0, 1 - sum(shares.values())) / max(1, len(numbers))
    total = max(1.0, sum(shares.values()))
    return {number: (share + even) / total for number, share in shares.items()}

"""Batches of a rank: from the rows of its partitions, or from a DataLoader of PyTorch."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hyperplane.core.errors import Fault
from hyperplane.core.optional import need
from hyperplane.core.permanent_errors import mark_permanent_errors
from hyperplane.core.public_calls import warn_caller
from hyperplane.ml.estimators.partition_reader import Arrays
from hyperplane.ml.estimators.training_data import (
    count_step_rows,
    count_steps,
    iterate_batches,
    order_rows,
)


class BatchSource(Protocol):
    """Batches of an epoch; all ranks have the same number."""

    @property
    def steps(self) -> int:
        """Number of batches."""

    def iterate(self, epoch: int) -> Iterator[tuple[Sequence[Any], Sequence[Any], int, int]]:
        """Yield inputs, labels, own rows, and the rows of all ranks."""


class PartitionBatches:
    """Batches of the rows of a rank. Without rows in a step, its first row has the weight 0."""

    def __init__(
        self,
        arrays: Arrays,
        rows: tuple[int, ...],
        batch_size: int,
        rank: int,
        shuffle: bool,
        seed: int,
    ) -> None:
        self._arrays, self._rows, self._rank = arrays, rows, rank
        self._batch_size, self._shuffle, self._seed = batch_size, shuffle, seed
        self.steps = count_steps(rows, batch_size)

    @property
    def labels(self) -> Sequence[np.ndarray]:
        """All labels of the rank."""
        return self._arrays[1] or ()

    def iterate(self, epoch: int) -> Iterator[tuple[Sequence[Any], Sequence[Any], int, int]]:
        """Yield the batches of an epoch."""
        x, y = self._arrays
        order = order_rows(self._rows[self._rank], self._shuffle, self._seed, epoch, self._rank)
        for step, numbers in enumerate(iterate_batches(order, self._batch_size, self.steps)):
            chosen = numbers if len(numbers) else np.array([0])
            total = count_step_rows(self._rows, self._batch_size, step)
            yield [a[chosen] for a in x], [a[chosen] for a in y or ()], len(numbers), total


class LoaderBatches:
    """Batches of a DataLoader whose sampler divides the samples among the ranks."""

    def __init__(self, loader: Any, sampler: Any, ranks: int) -> None:
        self._loader, self._sampler, self._ranks = loader, sampler, ranks
        self.steps = len(loader)

    def iterate(self, epoch: int) -> Iterator[tuple[Sequence[Any], Sequence[Any], int, int]]:
        """Yield the batches of an epoch."""
        if self._sampler is not None:
            self._sampler.set_epoch(epoch)
        for batch in self._loader:
            with mark_permanent_errors():
                inputs, labels = split_batch(batch)
            rows = len(labels[0])
            yield inputs, labels, rows, rows * self._ranks


def split_batch(batch: Any) -> tuple[list[Any], list[Any]]:
    """Return inputs and labels of ``(input, ..., labels)``.

    Examples
    --------
    >>> split_batch(("a", "b", "label"))
    (['a', 'b'], ['label'])
    >>> split_batch((("a", "b"), ("first", "second")))
    (['a', 'b'], ['first', 'second'])
    """
    if not isinstance(batch, list | tuple) or len(batch) < 2:
        kind = type(batch).__name__
        given = f"{kind} with the keys {list(batch)}" if isinstance(batch, Mapping) else kind
        raise TypeError(f"a batch is a {given}; expected (input, ..., label): set collate_fn")
    *inputs, labels = batch
    if len(inputs) == 1 and isinstance(inputs[0], list | tuple):
        inputs = list(inputs[0])
    return inputs, list(labels) if isinstance(labels, list | tuple) else [labels]


class SamplerShare:
    """Sampler of the share of one rank in the samples that a sampler of the user draws.

    All ranks draw the same numbers. For training, the first ones are repeated so that all ranks
    have the same number of samples.
    """

    def __init__(self, sampler: Any, rank: int, ranks: int, seed: int, repeats: bool) -> None:
        self._sampler, self._rank, self._ranks = sampler, rank, ranks
        self._seed, self._repeats, self._epoch = seed, repeats, 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, on which the drawn samples depend."""
        self._epoch = epoch

    def __len__(self) -> int:
        count = len(self._sampler)
        return -(-count // self._ranks) if self._repeats else len(self._select(range(count)))

    def __iter__(self) -> Iterator[int]:
        torch = need("torch", extra="torch")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(hash((self._seed, self._epoch)) % 2**63)
            numbers = list(self._sampler)
        if self._repeats and numbers:
            total = -(-len(numbers) // self._ranks) * self._ranks
            numbers = list(itertools.islice(itertools.cycle(numbers), total))
        return iter(self._select(numbers))

    def _select(self, numbers: Sequence[int]) -> Sequence[int]:
        return numbers[self._rank :: self._ranks]


def open_loader_batches(
    source: Any,
    config: Mapping[str, Any],
    batch_size: int,
    rank: int,
    ranks: int,
    evaluation: bool,
    seed: int,
) -> LoaderBatches:
    """Return the batches of a Dataset, a DataLoader, or a function that creates one of them.

    A DistributedSampler divides the samples for training. Samples of another sampler than a
    sequential or random one are divided in its order. Some samples are repeated in training, so
    that all ranks have the same number; in evaluation each sample is used once.
    """
    utils = need("torch.utils.data", extra="torch")
    created = source
    if not isinstance(source, utils.DataLoader | utils.Dataset):
        created = source(config, batch_size)
    own, drop_last, collate, size = None, False, None, batch_size
    if isinstance(created, utils.DataLoader):
        if created is not source and rank == 0:  # the client has warned of an object
            warn_loader_options(created)
        dataset, own, collate = created.dataset, created.sampler, created.collate_fn
        drop_last = created.drop_last
        size = batch_size if created is source else created.batch_size
        if size is None:
            raise ValueError("the DataLoader has a batch sampler; give it a batch_size instead")
    elif isinstance(created, utils.Dataset):
        dataset = created
    else:
        kind = type(created).__name__
        raise TypeError(f"the function has returned a {kind}; expected a Dataset or DataLoader")
    if isinstance(dataset, utils.IterableDataset) or not hasattr(dataset, "__len__"):
        raise TypeError("an IterableDataset cannot be divided among ranks; use a Dataset")
    sampler: Any = None
    if own is not None and not _divides_all(utils, own):
        sampler = SamplerShare(own, rank, ranks, seed, repeats=not evaluation)
    elif evaluation:
        dataset = utils.Subset(dataset, range(rank, len(dataset), ranks))
    else:
        shuffle = getattr(own, "shuffle", isinstance(own, utils.RandomSampler))
        sampler = utils.DistributedSampler(dataset, ranks, rank, shuffle=shuffle, seed=seed)
    loader = utils.DataLoader(
        dataset, batch_size=size, sampler=sampler, collate_fn=collate, drop_last=drop_last
    )
    if not evaluation and not len(loader):
        given = f"{len(dataset)} samples, a batch_size of {size} and drop_last={drop_last}"
        raise ValueError(f"a rank has no batch: the data has {given}")
    return LoaderBatches(loader, sampler, ranks)


def _divides_all(utils: Any, sampler: Any) -> bool:
    """Return whether a sampler draws each sample once, so that another can divide them."""
    if isinstance(sampler, utils.RandomSampler):
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return isinstance(sampler, utils.SequentialSampler | utils.DistributedSampler)


def to_tensors(torch: Any, arrays: Sequence[Any], model: Any, device: Any) -> list[Any]:
    """Return arrays as tensors on a device; floats get the type of the model's weights."""
    kind = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)

    def convert(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: convert(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [convert(each) for each in value]
        if isinstance(value, np.ndarray):
            # Arrays of Dask are read-only, which PyTorch does not support.
            value = torch.from_numpy(np.require(value, requirements=["C", "W"]))
        if not torch.is_tensor(value):
            return value
        return value.to(device, kind) if value.is_floating_point() else value.to(device)

    return [convert(each) for each in arrays]


def find_loader_faults(where: str, source: Any) -> list[Fault]:
    """Return the fault of a Dataset or DataLoader that cannot be divided among ranks."""
    utils = need("torch.utils.data", extra="torch")
    dataset = source.dataset if isinstance(source, utils.DataLoader) else source
    if isinstance(dataset, utils.IterableDataset):
        return [Fault(where, "an IterableDataset", "a Dataset with a length and items by number")]
    if isinstance(source, utils.DataLoader) and source.batch_size is None:
        return [Fault(where, "a DataLoader with a batch sampler", "a DataLoader with a batch_size")]
    return []


def warn_loader_options(*sources: Any) -> None:
    """Warn of options of DataLoaders that have no effect in ranks."""
    utils = need("torch.utils.data", extra="torch")
    options = [
        f"{name}={getattr(each, name)}"
        for each in sources
        if isinstance(each, utils.DataLoader)
        for name in ("num_workers", "pin_memory")
        if getattr(each, name)
    ]
    if options:
        given = ", ".join(dict.fromkeys(options))
        warn_caller(
            f"no effect: {given} of the DataLoader; each rank loads its batches in its process"
        )


def is_loader(source: Any) -> bool:
    """Return whether data is a Dataset, a DataLoader or a function that creates one."""
    if inspect.isroutine(source) or isinstance(source, functools.partial):
        return True
    modules = {base.__module__.partition(".")[0] for base in type(source).__mro__}
    return "torch" in modules

"""Functions of the ranks of a training: join the process group, convert data, draw batches."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from hyperplane.core.optional import need

#: Time in which all ranks connect, the default of PyTorch for groups.
_CONNECT_TIMEOUT = timedelta(minutes=30)


@contextmanager
def join_process_group(seed: int, can_share_gpus: bool = False) -> Iterator[Any]:
    """Join the process group of the gang, and leave it at the end; yield the device of this rank.

    Not for DistributedDataParallel: if its objects are removed after the group, the process can
    wait forever for a thread of gloo.
    """
    yield start_process_group(seed, can_share_gpus)
    # Not after an error: NCCL would wait for the other ranks, which end with this process.
    need("torch.distributed", extra="torch").destroy_process_group()


def start_process_group(seed: int | None = None, can_share_gpus: bool = False) -> Any:
    """Join the process group of the gang with one thread; return the device of this rank.

    If each rank has a separate GPU, the group uses NCCL. Otherwise it uses gloo, and all ranks
    compute on the CPU, or on GPUs that they share.

    Parameters
    ----------
    seed : int, optional
        Seed of random numbers on all devices of this rank.
    can_share_gpus : bool
        Whether ranks may share GPUs: gloo broadcasts and adds tensors of a GPU, but does not send
        or gather them.
    """
    torch, dist = need("torch", extra="torch"), need("torch.distributed", extra="torch")
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, is_master=rank == 0,
        timeout=_CONNECT_TIMEOUT,
    )  # fmt: skip
    store.set(f"gpus/{rank}", json.dumps(_list_gpus()))
    gpus = [json.loads(store.get(f"gpus/{each}")) for each in range(size)]
    number, is_own = choose_gpu(gpus, rank, can_share_gpus)
    device = torch.device("cpu") if number is None else torch.device("cuda", number)
    if number is not None:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if is_own else "gloo",
        store=dist.PrefixStore("group", store),
        rank=rank,
        world_size=size,
    )
    if seed is not None:
        torch.manual_seed(seed)
    return device


def _list_gpus() -> list[str]:
    """Return the UUIDs of the GPUs that this process may use, in their order."""
    torch = need("torch", extra="torch")
    if not torch.cuda.is_available():
        return []
    count = torch.cuda.device_count()
    return [str(torch.cuda.get_device_properties(each).uuid) for each in range(count)]


def choose_gpu(
    gpus: Sequence[Sequence[str]], rank: int, can_share: bool
) -> tuple[int | None, bool]:
    """Return the GPU of a rank, None for the CPU, and whether all ranks have separate GPUs.

    Parameters
    ----------
    gpus : sequence of sequences of str
        GPUs that each rank may use, in its own order. Ranks on workers of dask-cuda have the same
        GPUs in different orders, each with that of its worker first.
    rank : int
        Number of the rank.
    can_share : bool
        Whether ranks may share GPUs if there are not enough.

    Examples
    --------
    >>> choose_gpu([["A", "B"], ["A", "B"]], 1, can_share=False)
    (1, True)
    >>> choose_gpu([["A", "B"], ["B", "A"]], 1, can_share=False)
    (0, True)
    >>> choose_gpu([["A", "B"], ["A"]], 0, can_share=False)
    (1, True)
    >>> choose_gpu([["A"], ["A"]], 1, can_share=True)
    (0, False)
    >>> choose_gpu([["A"], ["A"]], 1, can_share=False)
    (None, False)
    """
    ranks: dict[str, int] = {}
    for each in range(len(gpus)):
        _assign_gpu(gpus, each, ranks, set())
    own = next((name for name, owner in ranks.items() if owner == rank), None)
    if own is not None and len(ranks) == len(gpus):
        return gpus[rank].index(own), True
    if can_share and all(gpus):
        return (gpus[rank].index(own) if own else rank % len(gpus[rank])), False
    return None, False


def _assign_gpu(
    gpus: Sequence[Sequence[str]], rank: int, ranks: dict[str, int], seen: set[str]
) -> bool:
    """Record the GPU of a rank in ``ranks``: a free one, or one whose rank can use another.

    This is an augmenting path of a bipartite matching; ``seen`` are the GPUs on it.
    """
    names = [name for name in gpus[rank] if name not in seen]
    seen.update(names)
    for name in names:
        if name not in ranks:
            ranks[name] = rank
            return True
    for name in names:
        if _assign_gpu(gpus, ranks[name], ranks, seen):
            ranks[name] = rank
            return True
    return False


def move_loss(loss: Any, device: Any) -> Any:
    """Return a loss on a device: modules can have tensors, such as the weights of classes."""
    torch = need("torch", extra="torch")
    return loss.to(device) if isinstance(loss, torch.nn.Module) else loss


def get_random_state(device: Any) -> dict[str, Any]:
    """Return the states of the generators of random numbers of a rank."""
    torch = need("torch", extra="torch")
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random_state(states: Mapping[str, Any], device: Any) -> None:
    """Restore states of generators of random numbers."""
    torch = need("torch", extra="torch")
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def convert(array: Any, model: Any, device: Any) -> Any:
    """Return an array as a tensor; floats get the type of the model's parameters."""
    torch = need("torch", extra="torch")
    # Arrays that Dask has received can be read-only, of which PyTorch warns.
    tensor = torch.as_tensor(array if array.flags.writeable else array.copy())
    if tensor.is_floating_point():
        types = (each.dtype for each in model.parameters() if each.is_floating_point())
        tensor = tensor.to(next(types, torch.get_default_dtype()))
    return tensor.to(device)


def draw_batches(rows: int, batch_size: int | None, shuffle: bool, seed: int) -> Sequence[Any]:
    """Return the row numbers of each batch: consecutive parts of a permutation, or of the order."""
    torch = need("torch", extra="torch")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(rows, generator=generator) if shuffle else torch.arange(rows)
    batches: Sequence[Any] = order.split(batch_size or max(rows, 1))
    return batches


def copy_state(model: Any) -> dict[str, Any]:
    """Return the parameters and buffers of a model, on the CPU."""
    return {name: value.detach().cpu() for name, value in model.state_dict().items()}

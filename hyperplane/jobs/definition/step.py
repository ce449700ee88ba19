"""Steps of pipelines, and the resources they need."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Literal

from pydantic import Field, JsonValue

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition import field_types
from hyperplane.jobs.definition.step_rules import resources_faults, step_faults
from hyperplane.jobs.definition.validated_record import ValidatedRecord, validate_record

Kind = Literal["notebook", "python", "javascript", "bash", "command", "train"]


class Resources(ValidatedRecord):
    """Resources that a step needs: a pool, or cores and memory.

    Parameters
    ----------
    pool : str, optional
        Name of a pool, such as ``"16_16"``.
    cores : float, optional
        Cores.
    ram_gb : float, optional
        Memory in GB (10**9 bytes).
    gpus : int
        GPUs.

    Raises
    ------
    RequestError
        With every fault, such as a pool together with cores.

    Examples
    --------
    >>> Resources(cores=4, ram_gb="16 GB")
    Resources(pool=None, cores=4.0, ram_gb=16.0, gpus=0)
    """

    pool: field_types.Name | None = None
    cores: field_types.Cores | None = None
    ram_gb: field_types.Memory | None = None
    gpus: field_types.Gpus = 0

    @classmethod
    def _check_fields(cls, values: Mapping[str, Any], faulty: Set[str]) -> list[Fault]:
        return resources_faults(values)


class Step(ValidatedRecord):
    """One step of a pipeline.

    Parameters
    ----------
    name : str
        Name of the step, one line of at most 128 characters.
    kind : {"notebook", "python", "javascript", "bash", "command", "train"}
        Type of program.
    path : str
        The notebook or script, relative to the pipeline's root; empty for a command
        and a training program.
    output_path : str, optional
        Path of the executed notebook, relative to the root; for notebooks only.
    kernel : str, optional
        Name of the Jupyter kernel that executes the notebook, in place of the one that the notebook
        names; for notebooks only.
    depends_on : tuple of str
        Names of the steps that it waits for. A step created without this argument waits, in
        :meth:`Pipeline.from_steps`, for the previous step; ``()`` starts at once.
    working_dir : str, optional
        Working folder, relative to the root; by default that of the pipeline.
    port : int, optional
        Port on which the program serves, from 1 to 65535.
    chunks : int, optional
        Number of times that the step runs, with the parameter ``chunk_id`` from 0.
    foreach : tuple of str, optional
        The step runs once for each value, with the parameters ``item`` and ``chunk_id``.
    max_parallel : int, optional
        Maximum concurrent chunks; by default as many as ``resources`` allow, or without cores and
        memory ``hyperplane.jobs.chunks_at_once``, which is by default the number of cores.
    retries : int, optional
        Number of retries, 0 to 10; by default that of the job.
    timeout : float, optional
        Maximum duration of one attempt in seconds, or text such as ``"10m"``.
    resources : Resources
        Resources that it needs.
    cluster : mapping, optional
        Arguments of ``initialize_cluster`` for the step's cluster. One of Dask starts when the
        program calls it; one of another framework, such as Ray, runs when the program starts.
    forecast : str, optional
        The collection that the step computes, as ``"job.py:totals"``: a Python program, relative to
        the root, and the name in it of a Dask collection or of a function without arguments that
        returns one. If no earlier run of the step is recorded, the pool ``auto`` is chosen by a
        forecast of it.
    env : mapping of str to str
        Environment variables. They are stored with the job, and shown to all users who can read its
        store.
    secrets : tuple of str
        Names of secrets for the step: environment variables of the submission, or files below
        ``/etc/hyperplane/secrets``. Their values are not stored.
    output : str, optional
        URL of the data that the chunks save with ``hyperplane.save(shard=)``. A chunk is not run if
        an earlier run of the same steps with the same parameters has committed its shard there.
    more_memory : float, optional
        Factor by which ``resources.ram_gb`` and the cluster's ``ram_gb_per_proc`` grow with each
        retry after the step ran out of memory.
    split : int, optional
        Factor by which the parameter ``pieces`` grows with each retry after a chunk ran out of
        memory; the chunk processes its share in that many pieces.
    step_functions : mapping, optional
        ``resource``, an ARN, and its ``parameters``: the task of AWS Step Functions that replaces
        the program in an exported machine, such as a Glue job.
    argv : tuple of str
        Program and arguments of a command, run without a shell.
    gang : int, optional
        Number of processes of the step, which start together, know each other's addresses and end
        together; not for notebooks. ``resources`` are those of each.
    module_name : str, optional
        Module of a training program, such as ``trainer.task``.
    package_path : str, optional
        Folder of its package, relative to the root; the program runs in the folder that contains
        it, by default in ``working_dir``.
    job_dir : str, optional
        Folder or URL that it gets as ``--job-dir``.
    worker_count, parameter_server_count, evaluator_count : int
        Its processes besides the primary; by default none.
    args : tuple of str
        Its arguments.
    tuning : mapping, optional
        Hyper-parameters of a training program and their trials, as ``hyperparameters`` of Cloud ML;
        the runner ``vertex`` then creates a tuning job.

    Raises
    ------
    RequestError
        With every fault of the step.

    Examples
    --------
    >>> Step(name="clean", kind="python", path="clean.py", timeout="10m").timeout
    600.0
    """

    name: field_types.Name
    kind: Kind
    path: field_types.OptionalPath = ""
    output_path: field_types.PathText | None = None
    kernel: field_types.Name | None = None
    depends_on: tuple[field_types.Name, ...] = ()
    working_dir: field_types.PathText | None = None
    port: field_types.Port | None = None
    chunks: field_types.Chunks | None = None
    foreach: field_types.Items | None = None
    max_parallel: field_types.Chunks | None = None
    retries: field_types.Retries | None = None
    timeout: field_types.Duration | None = None
    resources: Resources = Resources()
    cluster: dict[str, JsonValue] | None = None
    forecast: field_types.Target | None = None
    env: field_types.Environment = Field(default_factory=dict)
    secrets: tuple[field_types.Secret, ...] = ()
    output: field_types.Url | None = None
    more_memory: field_types.Factor | None = None
    split: field_types.Pieces | None = None
    step_functions: dict[str, JsonValue] | None = None
    argv: tuple[field_types.Text, ...] = ()
    gang: field_types.Ranks | None = None
    module_name: field_types.Module | None = None
    package_path: field_types.PathText | None = None
    job_dir: field_types.Url | None = None
    worker_count: field_types.Processes = 0
    parameter_server_count: field_types.Processes = 0
    evaluator_count: field_types.Processes = 0
    args: tuple[field_types.Text, ...] = ()
    tuning: dict[str, JsonValue] | None = None

    @classmethod
    def _build_nested(cls, values: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
        inner = values.get("resources")
        if not isinstance(inner, Mapping):
            return values, []
        resources, faults = validate_record(Resources, inner, "resources")
        rest = {name: value for name, value in values.items() if name != "resources"}
        return ({**rest, "resources": resources} if resources else rest), faults

    @classmethod
    def _check_fields(cls, values: Mapping[str, Any], faulty: Set[str]) -> list[Fault]:
        return step_faults(values, faulty)

    @property
    def chunk_count(self) -> int:
        """Number of chunks; 0 for a step without chunks."""
        return self.chunks or len(self.foreach or ())

    @property
    def gang_size(self) -> int:
        """Number of processes that start together; 0 for a step of a single process."""
        if self.kind == "train":
            return 1 + self.worker_count + self.parameter_server_count + self.evaluator_count
        return self.gang or 0

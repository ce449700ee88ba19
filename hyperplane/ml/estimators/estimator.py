"""``Estimator``: networks under the names and signatures of Orca.

``from_torch`` returns a :class:`TorchEstimator`, ``from_keras`` a :class:`KerasEstimator`. An
estimator of another framework has a static method here that imports it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from hyperplane.core.public_calls import check_call
from hyperplane.ml.estimators import keras_creation
from hyperplane.ml.estimators.torch_callbacks import ModelCheckpoint
from hyperplane.ml.estimators.torch_estimator import TorchEstimator
from hyperplane.ml.estimators.torch_settings import read_settings, warn_unused


class Estimator:
    """Estimators that train a network on the workers of the cluster."""

    from_keras = staticmethod(keras_creation.from_keras)
    load_keras_model = staticmethod(keras_creation.load_keras_model)
    from_graph = staticmethod(keras_creation.from_graph)

    @staticmethod
    def latest_checkpoint(checkpoint_dir: str | os.PathLike[str]) -> str:
        """Return the path of the last file of a ``ModelCheckpoint``, for ``load_checkpoint``.

        Parameters
        ----------
        checkpoint_dir : str or path
            Folder of the ``filepath`` of the ``ModelCheckpoint``.

        Returns
        -------
        str

        Raises
        ------
        RequestError
            If the folder has no ``last.ckpt``.
        """
        return ModelCheckpoint.get_latest_checkpoint(checkpoint_dir)

    @staticmethod
    @check_call(outcome="no estimator was created")
    def from_torch(
        *,
        model: Any,
        optimizer: Any = None,
        loss: Any = None,
        metrics: Any = None,
        scheduler_creator: Callable[..., Any] | None = None,
        training_operator_cls: Any = None,
        initialization_hook: Callable[[], Any] | None = None,
        config: Mapping[str, Any] | None = None,
        scheduler_step_freq: str = "epoch",
        use_tqdm: bool = False,
        workers_per_node: int | None = None,
        model_dir: str | os.PathLike[str] | None = None,
        backend: str | None = None,
        sync_stats: bool = True,
        log_level: int = 20,
        log_to_driver: bool = True,
        ranks: int | None = None,
        seed: int = 0,
        max_retries: int = 3,
    ) -> TorchEstimator:
        """Create an estimator of a PyTorch model.

        Parameters
        ----------
        model : torch.nn.Module or callable
            The model, or ``model(config)`` that creates it.
        optimizer : torch.optim.Optimizer or callable, optional
            An optimizer of the parameters of ``model``, ``optimizer(model, config)``, or an
            optimizer of ``hyperplane.orca.learn.optimizers``.
        loss : torch.nn.Module or callable, optional
            A loss, its class, ``loss(output, label)``, or ``loss(config)`` that creates one.
        metrics : str, metric, function or list, optional
            Names such as ``"accuracy"``, metrics of ``hyperplane.orca.learn.metrics``, or functions
            of outputs and labels, whose means are weighted by rows.
        scheduler_creator : callable, optional
            ``scheduler_creator(optimizer, config)``.
        initialization_hook : callable, optional
            Called in each rank before the model is created.
        config : mapping, optional
            Argument of the functions that create objects; it must not have a ``batch_size``.
        scheduler_step_freq : {"epoch", "batch"}
            When the scheduler takes a step.
        workers_per_node : int, optional
            Number of ranks on each host; by default one for each worker process.
        model_dir : str or path, optional
            Folder for checkpoints that all workers can use; by default a temporary folder.
        backend : {"bigdl", "spark", "ray", "torch_distributed", "horovod"}, optional
            Meaning of ``batch_size``: of all ranks together for ``"bigdl"`` and ``"spark"``, of
            each rank for the others. By default of all ranks for a model, and of each rank for a
            function that creates one. Training uses DistributedDataParallel for all.
        log_to_driver : bool
            Whether to print the output of the ranks.
        ranks : int, optional
            Number of ranks.
        seed : int
            Seed of the weights, of random layers and of shuffled rows.
        max_retries : int
            Maximum number of restarts from the last checkpoint after the loss of a rank.
        training_operator_cls, use_tqdm, sync_stats, log_level
            Accepted for compatibility, with a warning if they are set.

        Returns
        -------
        TorchEstimator

        Raises
        ------
        RequestError
            With every invalid argument.
        MissingPackage
            If PyTorch is not installed.
        """
        settings = read_settings(
            {
                "model": model,
                "optimizer": optimizer,
                "loss": loss,
                "metrics": metrics,
                "scheduler_creator": scheduler_creator,
                "initialization_hook": initialization_hook,
                "config": config,
                "scheduler_step_freq": scheduler_step_freq,
                "workers_per_node": workers_per_node,
                "model_dir": model_dir,
                "backend": backend,
                "log_to_driver": log_to_driver,
                "ranks": ranks,
                "seed": seed,
                "max_retries": max_retries,
            }
        )
        warn_unused(
            {
                "training_operator_cls": training_operator_cls is not None,
                "use_tqdm": not (use_tqdm is None or use_tqdm is False),
                "sync_stats": sync_stats is not True,
                "log_level": log_level != 20,
            }
        )
        return TorchEstimator(settings, ranks, workers_per_node)

"""Ranks of estimators without a gang, for tests of many small trainings."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def local_ranks():
    """Client whose estimators run their ranks in forked processes; give them ``ranks``."""
    from distributed import Client
    from local_ranks import RankServer

    from hyperplane.ml.estimators import torch_estimator

    with (
        Client(
            processes=False, dashboard_address=":0", n_workers=1, threads_per_worker=2
        ) as client,
        pytest.MonkeyPatch.context() as patch,
        RankServer() as server,
    ):
        patch.setattr(torch_estimator, "gang", server)
        yield client

"""Gangs: n processes that start together on the workers of a Dask cluster, and end together.

``gang_run``
    Runs in the client: reserves slots, submits one task for each rank, restarts all ranks.
``slots``
    Runs on the scheduler, which reserves all slots of a gang at once.
``rank_supervisor``, ``rank_process``, ``rank_output``
    The task of a rank, which ends its process when the scheduler no longer wants the task; the
    program of the process; the lines that it writes.
``gang_data``, ``gang_output``, ``gang_failure``
    Partitions of each rank; the output of all ranks; the error about the rank that failed first.
``adaptive_minimum``
    Workers that an adaptive cluster has to have while gangs run.
"""

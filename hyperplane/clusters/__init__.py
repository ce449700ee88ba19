"""Clusters: a plan, the engine that starts it, and the records of running clusters.

The modules are for all frameworks; ``dask`` has Dask's engines, one package for each platform.

``call_arguments``, ``planning``
    The arguments of a call, and the plan that is made from them.
``engine``, ``framework``, ``registry``
    The interfaces that engines and frameworks implement, and the list of those that exist.
``start_lines``, ``interrupts``, ``replacement``
    Steps of a start: the printed lines, Ctrl-C, and ``replace=True``.
``records``, ``record_folders``, ``running_clusters``, ``reserved_memory``, ``job_dashboards``
    Files that describe running clusters, and what is read from them.
``gang_plan``, ``program_environment``, ``rank_environment``
    Processes that start together, and their environment variables.
"""

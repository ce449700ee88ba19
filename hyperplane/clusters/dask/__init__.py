"""Dask clusters: one package for each platform, and the modules that these packages share.

``framework``, ``settings``, ``cluster_records``, ``dashboard_lines``
    Steps of every start: Dask's section of a plan, Dask settings, the record, the printed lines.
``guarded_cluster``, ``interruptible_start``, ``log_filters``, ``lazy_dashboard``
    Additions to Dask's cluster and scheduler: guards, Ctrl-C, fewer messages, the dashboard.
``default_clients``
    The configuration of Dask when the last of several clients closes.
``removed_methods``, ``dashboard_path``
    Names that Dask has removed, and the documented path of the dashboard, for published programs.
``local_process``, ``parent_death``, ``worker_memory``, ``gpu_layout``
    Worker processes: preloads, their end with the owner, memory allocators, GPUs.
``remote_process``, ``wait_for_workers``, ``versions``, ``start_errors``, ``attach``
    Clusters on other machines, and connections to clusters of other processes.
"""

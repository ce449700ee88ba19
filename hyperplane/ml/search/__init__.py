"""Hyper-parameter search: trials run as tasks of the cluster or as chunks of a job.

- public functions and classes: ``tuning``, ``program_tuning``, ``space``, ``trial``,
  ``search_result``
- a search: ``search_plan`` (what it does), ``search`` (its next trial and its results, and how it
  resumes), ``search_storage`` (database and folder), ``search_run`` (its remaining trials)
- where trials run: ``cluster_trials``, ``job_trials``
- what trials run: ``estimator_objective`` for scikit-learn; ``tuning_spec``, ``training_program``
  and ``program_wrapper`` for programs of Cloud ML
"""

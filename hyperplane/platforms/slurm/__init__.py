"""Slurm: the only package that calls its commands.

``commands`` runs sbatch, squeue and scancel; ``submit`` submits scripts, which ``directives``,
``script``, ``arrays`` and ``logs`` describe; ``queue`` queries and ends jobs in batches;
``job_state`` interprets their states and reasons; ``shared_folder`` places files for the nodes.
"""

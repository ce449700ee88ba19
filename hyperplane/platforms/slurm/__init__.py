"""Slurm, the only package that knows it: frameworks and runners of jobs start from here.

``commands`` runs sbatch, squeue and scancel; ``submit`` submits scripts, which ``directives``,
``script``, ``arrays`` and ``logs`` describe; ``queue`` queries and ends jobs in batches;
``job_state`` interprets their states and reasons; ``shared_folder`` places files for the nodes.
"""

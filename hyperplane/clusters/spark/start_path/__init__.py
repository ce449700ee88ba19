"""Folder of ``PYTHONPATH`` of programs and executors: Python runs ``sitecustomize`` at its start.

Its modules import neither this package nor large modules: each Python process loads them.
"""

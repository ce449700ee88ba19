"""Notebooks of steps: checks before the run, and parts of the program that executes them."""

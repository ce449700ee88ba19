"""Examples in pages and docstrings run as tests; ``scripts/examples.py`` says how."""

from scripts.examples import docstrings, pages

pytest_collect_file = (pages + docstrings).pytest()

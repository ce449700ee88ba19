"""Pipeline jobs: submit, run, cancel and resume them; their state is kept in a database."""

import lazy_loader

# Imported on first use: the processes of steps need little of this package, and no database.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

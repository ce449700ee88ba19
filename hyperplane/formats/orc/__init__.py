"""ORC files. CONTRIBUTING.md, *Add a file format*, lists what else a format has."""

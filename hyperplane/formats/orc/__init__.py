"""ORC. CONTRIBUTING.md, *Add a file format*, describes the files of this package."""

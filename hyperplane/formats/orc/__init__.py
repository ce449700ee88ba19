"""ORC: the example of *Add a file format* in CONTRIBUTING.md."""

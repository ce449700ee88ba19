"""The runner that submits a batch job for each attempt."""

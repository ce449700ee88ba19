"""Reader, checker and local runner of Amazon States Language machines."""

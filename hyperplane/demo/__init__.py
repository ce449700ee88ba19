"""The demo: a complete job on the flights from New York in 2013."""

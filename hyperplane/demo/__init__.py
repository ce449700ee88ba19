"""The demo: a complete computation with the flights from New York in 2013."""

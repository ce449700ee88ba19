"""Ray clusters: the framework Ray on the platforms."""

"""Programs that start the processes of a gang step, as files that run without the package."""

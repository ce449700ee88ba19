"""What every package uses: errors, units, optional imports, and adapters to Dask."""

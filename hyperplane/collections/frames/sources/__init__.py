"""How files become parts of a Dask dataframe: formats, plans, types."""

"""Implementation of ``hyperplane.dataframe``: dataframe helpers whose tasks run Polars."""

"""What ``hyperplane.dataframe`` is made of."""

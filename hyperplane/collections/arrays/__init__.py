"""What ``hyperplane.array`` is made of."""

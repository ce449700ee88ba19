"""What ``hyperplane.bag`` is made of."""

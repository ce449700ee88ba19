"""Implementation of ``hyperplane.bag``: records from files, selected, counted and tabulated."""

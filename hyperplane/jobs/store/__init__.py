"""Records of jobs and attempts, and the database that stores them."""

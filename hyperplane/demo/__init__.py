"""The demonstration: a whole job on the flights that left New York in 2013."""

"""Branch and bound on inputs: boxes are merged."""

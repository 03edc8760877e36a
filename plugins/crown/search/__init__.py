"""Branch and bound: the root, and the searches on neurons, on inputs and on values."""

"""Branch and bound on ReLU phases: subproblems fix the signs of neurons."""

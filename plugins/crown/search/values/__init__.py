"""Branch and bound on the inputs of smooth functions and products: their intervals are cut into pieces."""

"""`verifolio measure`: constraint satisfaction, security and accuracy of networks on data."""

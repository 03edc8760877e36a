"""Smaller graphs with the same values on one domain: opposite neurons merged, stable neurons removed."""

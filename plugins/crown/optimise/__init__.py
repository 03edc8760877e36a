"""Bounds with variables: slopes (alpha), split multipliers (beta) and row weights, raised by projected Adam."""

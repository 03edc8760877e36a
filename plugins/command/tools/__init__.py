"""Descriptions of well-known verifiers, as data files."""

"""Answers and tables on disk."""

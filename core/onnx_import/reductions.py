"""x."""

HANDLERS = {}

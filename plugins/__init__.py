"""The built-in plugins; each registers through the same hooks as a stranger's package."""

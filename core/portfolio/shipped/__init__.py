"""The built-in portfolios, as YAML files."""

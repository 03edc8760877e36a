"""Properties from files and formulas, and how their queries become one verdict."""

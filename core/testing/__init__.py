"""The testing kit: what a plugin author needs to check a plugin, and what checks the framework itself."""

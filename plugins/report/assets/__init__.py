"""The styles and scripts of the page."""

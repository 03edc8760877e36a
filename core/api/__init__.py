"""The functions of `import verifolio`: from a model and data to an answer."""

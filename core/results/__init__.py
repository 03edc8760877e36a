"""Results for people: what is known around every input, counterexamples as they are read, tables and pictures."""

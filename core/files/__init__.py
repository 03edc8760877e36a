"""Reading files from strangers: bounded, typed, with errors that name the place."""

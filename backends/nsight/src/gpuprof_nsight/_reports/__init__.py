"""The reports that nsys writes: their names, what it has left of them, and reading them."""

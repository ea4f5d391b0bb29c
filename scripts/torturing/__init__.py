"""Long runs that try to break sidecar: each has a seed and a duration, and prints a grid of what it did."""

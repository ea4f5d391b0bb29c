"""Numba loops over arrays, nothing else; they import nothing of ours."""

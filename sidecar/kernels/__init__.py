"""Compiled numba loops over arrays: hashes, filters, run-length encodings, bit transposition.

Only this package imports numba, and it imports nothing of sidecar outside itself. Checks of arguments and errors are in
the callers. Planning must not import it, because loading numba takes longer than a plan. Start with ``_jit``.
"""

"""Checks an ORC file: its structure, its row indexes and its statistics against the values.

Start with :func:`sidecar.orc.verify.verify.verify_file`, which calls the other modules.
"""

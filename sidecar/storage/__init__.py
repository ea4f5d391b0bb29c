"""Opens files for reading and writes new ones: the one place for input and output.

Start with :func:`sidecar.storage.opening.open_source` and :func:`sidecar.storage.target.create_target`.
"""

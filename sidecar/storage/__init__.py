"""Opens files for reading and writes new ones: the one place for input and output.

Start with :func:`sidecar.storage.source.open_source` and :func:`sidecar.storage.target.write_target`.
"""

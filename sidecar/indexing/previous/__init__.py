"""The work of earlier builds: the files that they serve, their sketches, and their segments in the new file.

Start with :func:`sidecar.indexing.previous.earlier.look_back`.
"""

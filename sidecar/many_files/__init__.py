"""Many files at once: paths, folders and globs; inspect, verify and probe with a result a file and a summary.

Start with :func:`sidecar.many_files.find.find_files` and :func:`sidecar.many_files.inspect.inspect`.
"""

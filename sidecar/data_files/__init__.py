"""Data files of tables, opened: one protocol for Parquet and ORC.

Whoever reads a data file by its units and columns takes an :class:`sidecar.data_files.open_file.OpenFile`, and does not
ask which format it is. :mod:`sidecar.data_files.formats` opens one. Writers know their format.
"""

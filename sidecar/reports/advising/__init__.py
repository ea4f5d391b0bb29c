"""Advises which columns of a table deserve which index.

Start with :func:`sidecar.reports.advising.advise.advise`.
"""

"""Finds out which data files of a table hold a value, and gives the evidence.

Start with :func:`sidecar.reports.finding.find.find`.
"""

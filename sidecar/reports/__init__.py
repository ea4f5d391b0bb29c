"""Answers what a table's owner asks about its data and its indexes.

Start with :func:`sidecar.reports.finding.find`: which data files hold a value.
"""

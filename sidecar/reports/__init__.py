"""Answers what a table's owner asks about its data and its indexes.

Start with :func:`sidecar.reports.advising.advise.advise`, which columns deserve which index, and
:func:`sidecar.reports.finding.find.find`, which data files hold a value.
"""

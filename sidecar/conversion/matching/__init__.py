"""Matches data files with the files that a sidecar lists, and proves it by their values.

Start with :class:`sidecar.conversion.matching.match.Finder`.
"""

"""Merging: several segments of sidecars become one, without any data file.

Start with :mod:`sidecar.bundle.merging.merge`. :mod:`sidecar.bundle.merging.arrangement` decides which segments are
merged when a sidecar is written.
"""

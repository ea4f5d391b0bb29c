"""The wrapping of each blob of a sidecar: its envelope, checksums, encryption and seals.

Start with :mod:`sidecar.bundle.envelopes.envelope`.
"""

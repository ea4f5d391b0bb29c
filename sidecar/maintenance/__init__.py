"""The scheduled job of a table's sidecars: it keeps them current, small and registered.

Start with :mod:`sidecar.maintenance.refreshing`, which indexes what is new. What a table declares to be indexed is in
:mod:`sidecar.indexing.declaration`, because a build reads it too. :mod:`sidecar.maintenance.expiring` removes
registrations that nothing needs, and :mod:`sidecar.maintenance.garbage` deletes the files that no registration names.
"""

"""What a scheduled job does to the sidecars of a table: it keeps them current, small and registered.

Start with :mod:`sidecar.maintenance.compacting`, which merges the segments of a sidecar,
:mod:`sidecar.maintenance.expiring`, which removes registrations that nothing needs, and
:mod:`sidecar.maintenance.garbage`, which deletes the files that no registration names.
"""

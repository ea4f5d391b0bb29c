"""What a scheduled job does to the sidecars of a table.

Start with :mod:`sidecar.maintenance.expiring`, which removes registrations that nothing needs, and
:mod:`sidecar.maintenance.garbage`, which deletes the files that no registration names.
"""

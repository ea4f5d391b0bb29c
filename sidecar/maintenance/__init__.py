"""What a scheduled job does to the sidecars of a table: it keeps them current, small and registered."""

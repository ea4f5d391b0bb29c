"""Commands that a scheduled job runs to care for the sidecars of tables."""

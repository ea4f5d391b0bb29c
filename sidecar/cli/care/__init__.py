"""Commands of a scheduled job, a module each."""

"""Commands that answer what a table's owner asks."""

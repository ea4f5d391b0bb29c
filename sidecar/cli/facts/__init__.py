"""Commands that answer questions about a table."""

"""A page about tables and their sidecars: its facts, its pictures, and the file."""

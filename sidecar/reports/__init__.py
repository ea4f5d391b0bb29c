"""What the owner of a table asks about it and its sidecars."""

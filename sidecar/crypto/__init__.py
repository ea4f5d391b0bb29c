"""Keys and AES as the formats need them; no format, no file."""

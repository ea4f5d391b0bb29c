"""Makes the documents' site and the pictures of README."""

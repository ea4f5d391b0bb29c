"""Makes the documents' site out of guides, docstrings and results, and the pictures of README."""

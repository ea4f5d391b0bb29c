"""The proxy before a REST catalog: it forwards requests, and answers plan requests itself."""

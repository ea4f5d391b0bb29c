"""Values, hashes and bits: encodings, split-block Bloom filters, theta sketches."""

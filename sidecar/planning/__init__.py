"""Which files, row groups and pages of a snapshot can hold rows for a predicate, and what a sidecar says of them."""

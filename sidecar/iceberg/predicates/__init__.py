"""Predicates: text, pyiceberg expressions, and the one condition tree that is made of them.

Start with :func:`sidecar.iceberg.predicates.predicate.as_expression`.
"""

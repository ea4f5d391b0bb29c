"""Plans for many keys of one column, as the keys of a join.

Start with :class:`sidecar.planning.keys.key_pruning.KeyPruner`.
"""

"""What a predicate asks of indexes: conditions on columns, what bounds say of them, and the rows that are left."""

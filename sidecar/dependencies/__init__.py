"""Uses of other packages that may differ from version to version: one module a package.

No other module uses a private name of pyiceberg or PySpark; ``tests/dependencies`` holds that.
"""

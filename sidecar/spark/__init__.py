"""The same stages on Spark."""

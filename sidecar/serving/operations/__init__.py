"""The view of operators: health, metrics, a log line a plan, and the state of each table's sidecars."""

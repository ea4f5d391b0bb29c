"""What all benchmarks share: timing in turns, data that is made once, results, the report and its pictures."""

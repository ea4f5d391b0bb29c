"""The data of benchmarks, made by foreign writers where there are any."""

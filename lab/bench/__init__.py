"""Benchmarks: each measures this machine beside a reference in the same run."""

"""Proofs of plantlog: benchmarks and faults, with commands of their own."""

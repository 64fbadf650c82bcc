"""What proves plantlog: benchmarks and faults, with commands of their own."""

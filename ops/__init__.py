"""Running the appliance: launcher commands, PostgreSQL, supervision, status, benchmarks."""

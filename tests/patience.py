"""How long a test waits for what has to happen: a bound against hanging, not a measure; machines differ by much."""

PATIENCE = 120.0  # s

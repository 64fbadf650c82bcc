"""The spool: a bounded, durable log on disk between a collector process and the writer."""

"""HTTP servers of plantlog's processes: their limits, their TLS and its certificate, their health endpoints."""

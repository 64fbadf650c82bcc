"""Prometheus beside plantlog: what it scrapes, what it computes, when it calls somebody; and the same for Grafana."""

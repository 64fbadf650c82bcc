"""Prometheus for plantlog: scrape targets, recording rules and alerts; and the alerts for Grafana."""

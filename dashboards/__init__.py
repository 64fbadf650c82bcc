"""Dashboards as JSON files with their queries, and the viewer for sites without Grafana."""

"""Dashboards as JSON files, their generator, and the viewer for sites without Grafana."""

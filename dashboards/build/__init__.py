"""Writes the dashboards' JSON files: layout here, SQL in ``dashboards/queries``."""

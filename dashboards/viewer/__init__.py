"""The dashboard viewer: a page that renders the dashboards' JSON files, and its web server."""

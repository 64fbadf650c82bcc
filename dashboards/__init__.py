"""Dashboards as files, what writes them, and the page that draws them where no Grafana runs."""

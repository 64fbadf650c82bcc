"""The page that draws the dashboards' JSON files, and the small web server behind it."""

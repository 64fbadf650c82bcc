"""Migrations and the SQL that the appliance runs."""

"""Seals, their verification, and export, on a real database."""

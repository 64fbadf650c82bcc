"""Seals of days and their verification, on a real database."""

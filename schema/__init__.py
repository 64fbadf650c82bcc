"""The SQL that plantlog runs, and nothing else: ``ops/migration`` brings a database to it."""

from pathlib import Path

FOLDER = Path(__file__).parent

"""Processes of the appliance: arguments, signals, and the record of their starts."""

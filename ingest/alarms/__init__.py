"""Alarms with the terms and states of ISA-18.2: evaluated in the collectors, stored as events."""

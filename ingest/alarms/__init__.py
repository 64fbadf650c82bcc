"""Alarms by the terms and states of ISA-18.2: judged where samples come in, kept as events."""

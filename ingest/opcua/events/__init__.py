"""Events, alarms and conditions (OPC 10000-9)."""

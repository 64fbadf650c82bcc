"""A small plant that speaks OPC UA and Modbus."""

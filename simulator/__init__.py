"""A simulated plant with OPC UA, Modbus and push."""

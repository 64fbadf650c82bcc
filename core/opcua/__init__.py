"""The OPC UA client: its sessions and service calls, the address space, the binary encoding."""

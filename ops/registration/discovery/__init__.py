"""Tag lists from the address space of an OPC UA server, and what tags and server differ in."""

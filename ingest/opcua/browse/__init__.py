"""The address space: variables, their types and structures."""

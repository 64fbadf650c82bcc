"""The redundant pair: the lease, the standby that trims its spools, and what is looked up by its content."""

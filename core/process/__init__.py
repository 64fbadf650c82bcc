"""A process of the appliance: from its start to its end, and its record of starts."""

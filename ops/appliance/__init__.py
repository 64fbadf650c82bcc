"""The native appliance: ``up``, ``down``, ``status``, ``logs``, its processes and their supervisor."""

"""Overload: its indicators (``measure``), when it starts and ends (``state``), and its record (``monitor``).

It is derived from what is there, in the maintenance process, once a second: the age of the oldest batch in the spools
that the database does not have yet, how long processes waited for a processor, and how far apart polls are.
``ops.maintenance.throttle`` says which jobs wait for it, and in which order.
"""

"""``plantlog lab bench overload``: the whole appliance beyond its limit, and how long it is until all is as before.

``flood`` and ``lab.chaos.stress`` (pushes, busy processes, a slow database) → ``appliance`` (brought up, looked at) →
``measure`` (before, strain, after: the figures of each case).
"""

"""``plantlog lab chaos``: inject faults into an appliance under load, then compare table, gaps and ground truth.

schedule (what fails when) → appliance_trial (plant, relays and disk brought up, the schedule played) → settling (until
nothing waits any more) → report (counts that must be 0, or exit code 1).
"""

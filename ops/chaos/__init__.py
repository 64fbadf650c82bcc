"""``plantlog chaos``: the whole appliance under a load while what can fail fails, then table, gaps and truth compared.

schedule (what fails when) → run (appliance, plant, wires and disk brought up, the schedule played) → settle (until
nothing waits any more) → report (counts that must be 0, or exit code 1).
"""

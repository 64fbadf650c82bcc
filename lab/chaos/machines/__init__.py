"""``plantlog lab chaos --machines``: the machines of a redundant pair and of its database fail.

Two members, each a state folder of its own, and two database servers, of which one is the standby of the other, with a
backup repository. Every connection between two of them, and to the plant, goes through a relay.
"""

"""The people who use plantlog: who they are, what they may do, and what they did."""

"""Users of plantlog: accounts, roles and passwords."""

"""Tells people of alarms: messages are made of what the writer queued, and delivered until each receiver has them."""

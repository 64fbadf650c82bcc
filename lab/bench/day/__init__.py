"""A day of a plant at the speed that the machine holds: ingest, packing, rollups, sealing and retention in balance.

Which clock. All times are generated: the day begins at a past midnight (UTC), and each second of it comes as soon as
the writer has those before. What waits for a time to be over must go by the same clock, or the true order of things is
lost: hours of the past would be packed while they still fill. No clock is faked. The appliance has two clocks that
count here, and both can be told:

- Packing, sealing and retention ask whether an hour or a day ended longer ago than data may be late (the setting
  ``lateness``). The bench sets it, twice a second, to how far the generated time is behind ours, and an hour more. So
  an hour of rows is packed when it has been over for an hour of generated time.
- The writer's minutes go by the newest of what comes where all of it is behind our clock
  (``ingest.writer.minutes.open_minutes``).

Jobs that run every ten minutes of a day run every ten generated minutes: in the place of the appliance's maintenance
process there is one with the same jobs, which is told when each is due (``keeping``). Its turns, pauses and limits are
the appliance's own. Jobs that have nothing to do with samples (logins, readers' sessions) stay on our clock.

The speed. The generator waits while the writer is behind by more than some batches. It also waits while the oldest row
that is not packed is older than in a real day plus an hour: what is then held is what all parts hold together.
"""

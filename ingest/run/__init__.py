"""The processes of ingest: collectors, writer and alarms, as the supervisor starts them."""

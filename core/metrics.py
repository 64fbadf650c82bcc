"""Metrics of plantlog. Names follow the Prometheus conventions: unit last, ``_total`` for counters."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call]  # no additional series with the time of creation

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)  # s
_ROWS = (1, 10, 100, 1_000, 5_000, 20_000, 100_000, 400_000)

# collectors
samples = Counter("plantlog_samples_total", "Samples made durable in the spool", ["source"])
events = Counter("plantlog_events_total", "Events made durable in the spool", ["source", "type"])
counts = Counter("plantlog_counts_total", "Increments made durable in the spool", ["source"])
source_up = Gauge("plantlog_source_up", "1 while the source is connected", ["source"])
bad_channels = Gauge("plantlog_bad_channels", "Channels of the source that cannot be read", ["source"])
reconnects = Counter("plantlog_reconnects_total", "Reconnections to the source", ["source"])
decode_errors = Counter("plantlog_decode_errors_total", "Messages or items that could not be decoded", ["source"])
missed = Counter("plantlog_missed_total", "Missed polls or notifications", ["source"])
late_answers = Counter(
    "plantlog_late_answers_total", "Responses that arrived after their timeout and were dropped", ["source"]
)
open_gaps = Gauge("plantlog_open_gaps", "Open gaps, of the source and of its channels", ["source"])
gaps = Counter("plantlog_gaps_total", "Gaps recorded", ["source", "reason"])
request_seconds = Histogram(
    "plantlog_request_seconds", "Round-trip time of a read or publish request", ["source"], buckets=_LATENCY
)

push_answers = Counter("plantlog_push_answers_total", "Pushed request bodies, by HTTP status", ["source", "status"])
push_refused = Counter("plantlog_push_refused_total", "Lines and fields rejected as bad", ["source"])
push_retries = Counter("plantlog_push_retries_total", "Retried request bodies without timestamps", ["source"])

# HTTP
http_closed = Counter(
    "plantlog_http_closed_total",
    "HTTP connections closed: request too slow, evicted for a new connection, or refused because all were busy",
    ["reason"],  # late, room, full
)
wrong_tokens = Counter("plantlog_wrong_tokens_total", "Requests with a wrong token or password", ["endpoint"])

# spool
spool_append_rows = Histogram("plantlog_spool_append_rows", "Rows written per fsync", buckets=_ROWS)
spool_append_seconds = Histogram("plantlog_spool_append_seconds", "Time from append to fsync", buckets=_LATENCY)
spool_waiting_rows = Gauge("plantlog_spool_waiting_rows", "Rows waiting for the next fsync")
spool_rows = Gauge("plantlog_spool_rows", "Rows in the spool that are not yet in the database", ["spool"])
spool_bytes = Gauge("plantlog_spool_bytes", "Size of the spool file and its write-ahead log in bytes", ["spool"])
spool_max_bytes = Gauge("plantlog_spool_max_bytes", "Maximum size of the spool file in bytes", ["spool"])
spool_full = Counter("plantlog_spool_full_total", "Appends refused because the spool was full")

# journal
journal_bytes = Gauge("plantlog_journal_bytes", "Size of the journal of committed batches in bytes")
journal_begin = Gauge(
    "plantlog_journal_begin_timestamp_seconds", "Time of the oldest commit in the journal in seconds since 1970 UTC"
)
journal_failures = Counter("plantlog_journal_failures_total", "Groups of batches that the journal could not keep")
replay_rows = Gauge("plantlog_replay_rows", "Rows of the journal that wait to be written again")

# writer
database_restored = Gauge(
    "plantlog_database_restored_timestamp_seconds",
    "When the writer last noticed that the database had lost what was committed, in seconds since 1970 UTC; 0: never",
)
member_writes = Gauge(
    "plantlog_member_writes", "1 while this member of a redundant pair writes; 0: it stands by", ["member"]
)
member_away = Gauge("plantlog_member_away", "1 while this member of a redundant pair is not seen", ["member"])
take_over = Gauge(
    "plantlog_take_over_timestamp_seconds",
    "When this member last took over from the other one of the redundant pair, in seconds since 1970 UTC; 0: never",
)
written_rows = Counter("plantlog_written_rows_total", "Samples committed", ["method"])  # copy or conflict
written_events = Counter("plantlog_written_events_total", "Events committed")
increments = Counter(
    "plantlog_increments_total", "Increments added to event_count_1m", ["of"]
)  # counts, events, quality
write_rows = Histogram("plantlog_write_rows", "Samples committed by one transaction", buckets=_ROWS)
write_seconds = Histogram("plantlog_write_seconds", "Duration of a transaction", buckets=_LATENCY)
spool_wait_seconds = Histogram(
    "plantlog_spool_wait_seconds", "Time from receipt to being read by the writer", buckets=_LATENCY
)
lag_seconds = Histogram(
    "plantlog_lag_seconds", "Time from the newest source timestamp of a batch to its commit", buckets=_LATENCY
)
duplicates = Counter("plantlog_duplicates_total", "Samples already stored with equal value and status")
conflicts = Counter(
    "plantlog_conflicts_total", "Rejected samples whose channel and time are stored with another value or status"
)
quarantined = Counter("plantlog_quarantined_total", "Samples, events and gaps quarantined", ["reason"])
write_failures = Counter("plantlog_write_failures_total", "Failed transactions that were retried", ["reason"])
database_up = Gauge("plantlog_database_up", "1 while the writer can reach the database")

# viewer
viewer_answers = Counter("plantlog_viewer_answers_total", "Viewer requests, by HTTP status", ["what", "status"])
viewer_seconds = Histogram("plantlog_viewer_seconds", "Time to answer a viewer request", ["what"], buckets=_LATENCY)

# what is used up
disk_free_bytes = Gauge("plantlog_disk_free_bytes", "Free disk space at a folder in bytes", ["folder"])
disk_bytes = Gauge("plantlog_disk_bytes", "Size of the disk at a folder in bytes", ["folder"])
certificate_expiry = Gauge(
    "plantlog_certificate_expiry_timestamp_seconds",
    "Expiry time of a certificate in seconds since 1970 UTC",
    ["certificate"],
)

# maintenance
backup_last = Gauge(
    "plantlog_backup_last_timestamp_seconds", "Time of the newest backup in seconds since 1970 UTC; 0: there is none"
)
backup_interval = Gauge("plantlog_backup_interval_seconds", "The interval between backups: [backup] every")
backup_proven = Gauge(
    "plantlog_backup_proven_timestamp_seconds",
    "Time of the newest backup that was restored and verified in seconds since 1970 UTC; 0: there is none",
)
backup_waiting_wal = Gauge(
    "plantlog_backup_waiting_wal_segments", "Segments of 16 MiB of write-ahead log that wait for the repository"
)
job_runs = Counter("plantlog_job_runs_total", "Runs of a maintenance job", ["job", "outcome"])
job_seconds = Histogram("plantlog_job_seconds", "Duration of a run", ["job"], buckets=_LATENCY)
job_rows = Counter("plantlog_job_rows_total", "Rows or objects processed by a job", ["job"])
job_failing = Gauge("plantlog_job_failing", "Consecutive failed runs of a job", ["job"])
job_last_success = Gauge(
    "plantlog_job_last_success_timestamp_seconds", "Time of the last successful run of a job", ["job"]
)
overloaded = Gauge("plantlog_overloaded", "1 while ingest lags behind, or polls are late because the CPU is busy")
storage_bytes = Gauge("plantlog_storage_bytes", "Size of the database in bytes")
storage_budget_bytes = Gauge("plantlog_storage_budget_bytes", "Disk budget of the database in bytes; 0: no budget")
storage_lacking_bytes = Gauge(
    "plantlog_storage_lacking_bytes",
    "Bytes over the budget that cannot be freed, because the remaining data is open, unsealed or not raw",
)
storage_days_left = Gauge(
    "plantlog_storage_days_left", "Days until the disk is full at the recent growth rate; NaN: unknown"
)
storage_days_left.set(float("nan"))  # a gauge begins at 0, which would be an alarm
standbys_missing = Gauge(
    "plantlog_standbys_missing", "Servers named in PLANTLOG_DSN that do not replicate from the primary"
)
# alarms
alarms_active = Gauge("plantlog_alarms_active", "Active alarms, without shelved ones", ["source", "priority"])
alarms_unacknowledged = Gauge("plantlog_alarms_unacknowledged", "Unacknowledged alarms", ["source"])
alarms_inhibited = Gauge("plantlog_alarms_inhibited", "Alarms shelved, suppressed or out of service", ["source"])
alarm_changes = Counter("plantlog_alarm_changes_total", "Alarm state changes", ["source", "action"])
notifications = Counter("plantlog_notifications_total", "Notifications delivered", ["target"])
notification_failures = Counter("plantlog_notification_failures_total", "Failed delivery attempts", ["target"])
notifications_waiting = Gauge("plantlog_notifications_waiting", "Notifications not yet delivered", ["target"])


def remove_source(name: str) -> None:
    """Remove the gauges of a source that is no longer read."""
    for gauge in (source_up, bad_channels, open_gaps, alarms_active, alarms_unacknowledged, alarms_inhibited):
        gauge.remove_by_labels({"source": name})

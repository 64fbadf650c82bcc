"""Every metric of plantlog, in one place. Names follow Prometheus' custom: unit last, ``_total`` for counters."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each that says when it began

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)  # s
_ROWS = (1, 10, 100, 1_000, 5_000, 20_000, 100_000, 400_000)

# collectors
samples = Counter("plantlog_samples_total", "Samples made durable in the spool", ["source"])
events = Counter("plantlog_events_total", "Events made durable in the spool", ["source", "type"])
counts = Counter("plantlog_counts_total", "Increments made durable in the spool", ["source"])
source_up = Gauge("plantlog_source_up", "1 while the source is connected", ["source"])
bad_channels = Gauge("plantlog_bad_channels", "Channels of the source that can't be read now", ["source"])
reconnects = Counter("plantlog_reconnects_total", "Connections made after the first", ["source"])
decode_errors = Counter("plantlog_decode_errors_total", "Messages or items that could not be decoded", ["source"])
missed = Counter("plantlog_missed_total", "Polls or notifications that were due and not had", ["source"])
late_answers = Counter("plantlog_late_answers_total", "Answers that came after their time-out, dropped", ["source"])
open_gaps = Gauge("plantlog_open_gaps", "Gaps open now, of the source and of each of its channels", ["source"])
gaps = Counter("plantlog_gaps_total", "Gaps put on record", ["source", "reason"])
request_seconds = Histogram(
    "plantlog_request_seconds", "Time of one read or publish round trip", ["source"], buckets=_LATENCY
)

push_answers = Counter("plantlog_push_answers_total", "Bodies that were pushed, by the answer", ["source", "status"])
push_refused = Counter("plantlog_push_refused_total", "Lines and fields that were named as bad", ["source"])
push_retries = Counter("plantlog_push_retries_total", "Bodies without times that came again", ["source"])

# what is asked of us over HTTP
http_closed = Counter(
    "plantlog_http_closed_total",
    "Connections that were closed: too late with a request, to make room, or refused where all were busy",
    ["why"],  # late, room, full
)
wrong_tokens = Counter("plantlog_wrong_tokens_total", "Requests without a token that is right", ["endpoint"])

# spool
spool_append_rows = Histogram("plantlog_spool_append_rows", "Rows made durable by one fsync", buckets=_ROWS)
spool_append_seconds = Histogram("plantlog_spool_append_seconds", "From append to durable", buckets=_LATENCY)
spool_waiting_rows = Gauge("plantlog_spool_waiting_rows", "Rows that wait for the next fsync")
spool_rows = Gauge("plantlog_spool_rows", "Rows durable and not yet in the database", ["spool"])
spool_bytes = Gauge("plantlog_spool_bytes", "Bytes of the spool file and its log", ["spool"])
spool_max_bytes = Gauge("plantlog_spool_max_bytes", "Bytes that the spool file may have", ["spool"])
spool_full = Counter("plantlog_spool_full_total", "Appends refused because the spool was full")

# writer
written_rows = Counter("plantlog_written_rows_total", "Samples committed", ["lane"])  # copy or conflict
written_events = Counter("plantlog_written_events_total", "Events committed")
increments = Counter(
    "plantlog_increments_total", "Increments added to event_count_1m", ["of"]
)  # counts, events, quality
write_rows = Histogram("plantlog_write_rows", "Samples committed by one transaction", buckets=_ROWS)
write_seconds = Histogram("plantlog_write_seconds", "Time of one transaction", buckets=_LATENCY)
spool_wait_seconds = Histogram("plantlog_spool_wait_seconds", "From received to taken by the writer", buckets=_LATENCY)
lag_seconds = Histogram(
    "plantlog_lag_seconds", "From the newest source time of a batch to its commit", buckets=_LATENCY
)
duplicates = Counter("plantlog_duplicates_total", "Samples that were already in the table, with equal value and status")
conflicts = Counter("plantlog_conflicts_total", "Second, different values for the same channel and time, kept out")
quarantined = Counter("plantlog_quarantined_total", "Samples, events and gaps kept out of the tables", ["reason"])
write_failures = Counter("plantlog_write_failures_total", "Transactions that failed and were tried again", ["reason"])
database_up = Gauge("plantlog_database_up", "1 while the writer can reach the database")

# viewer
viewer_answers = Counter("plantlog_viewer_answers_total", "Questions of the page, by the answer", ["what", "status"])
viewer_seconds = Histogram("plantlog_viewer_seconds", "From question to answer", ["what"], buckets=_LATENCY)

# what is used up
disk_free_bytes = Gauge("plantlog_disk_free_bytes", "Bytes that are free on the disk of a folder", ["folder"])
disk_bytes = Gauge("plantlog_disk_bytes", "Bytes that the disk of a folder has", ["folder"])
certificate_expiry = Gauge(
    "plantlog_certificate_expiry_timestamp_seconds", "When a certificate ends, s since 1970 UTC", ["certificate"]
)

# maintenance
job_runs = Counter("plantlog_job_runs_total", "Runs of a job of maintenance", ["job", "outcome"])
job_seconds = Histogram("plantlog_job_seconds", "Time of a run", ["job"], buckets=_LATENCY)
job_rows = Counter("plantlog_job_rows_total", "Rows or things that a job has handled", ["job"])
job_failing = Gauge("plantlog_job_failing", "Failed runs of a job in a row", ["job"])
job_last_success = Gauge("plantlog_job_last_success_timestamp_seconds", "When a job last succeeded", ["job"])
overloaded = Gauge("plantlog_overloaded", "1 while ingest is behind, or polls are late for want of a processor")
storage_bytes = Gauge("plantlog_storage_bytes", "Bytes of the database")
storage_budget_bytes = Gauge("plantlog_storage_budget_bytes", "Bytes that the database may have; 0: no budget")
storage_lacking_bytes = Gauge(
    "plantlog_storage_lacking_bytes",
    "Bytes over the budget that can't be freed: what is left is open, unsealed or no raw data",
)
storage_days_left = Gauge(
    "plantlog_storage_days_left", "Days until the disk is full at the last days' growth; NaN: not known"
)
storage_days_left.set(float("nan"))  # a gauge begins at 0, which would be an alarm
# alarms
alarms_active = Gauge(
    "plantlog_alarms_active", "Alarms beyond their limit now, shelved ones not counted", ["source", "priority"]
)
alarms_unacknowledged = Gauge("plantlog_alarms_unacknowledged", "Alarms that nobody has acknowledged", ["source"])
alarms_inhibited = Gauge("plantlog_alarms_inhibited", "Alarms shelved, suppressed or out of service", ["source"])
alarm_changes = Counter("plantlog_alarm_changes_total", "Changes of alarms", ["source", "action"])
notifications = Counter("plantlog_notifications_total", "Messages that a receiver took", ["target"])
notification_failures = Counter(
    "plantlog_notification_failures_total", "Attempts that a receiver did not take", ["target"]
)
notifications_waiting = Gauge("plantlog_notifications_waiting", "Messages not yet delivered", ["target"])


def forget_source(name: str) -> None:
    """Take away the gauges of a source that is read no more: its last state is no news."""
    for gauge in (source_up, bad_channels, open_gaps, alarms_active, alarms_unacknowledged, alarms_inhibited):
        gauge.remove_by_labels({"source": name})

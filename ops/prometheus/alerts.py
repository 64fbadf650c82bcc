"""When somebody is called: the one source of Prometheus' rules and of Grafana's.

Thresholds are for a plant that is watched around the clock: ``critical`` means that samples are lost or will be within
hours, ``warning`` that somebody looks the same day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["warning", "critical"]


@dataclass(frozen=True, slots=True)
class Record:
    """A series that dashboards and alerts share."""

    record: str
    expr: str


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. It fires for each series that ``expr`` gives for ``hold`` without a break."""

    name: str
    expr: str  # PromQL
    hold: str  # a Prometheus duration
    severity: Severity
    summary: str  # one line, with Prometheus' templates
    description: str  # what it means, and what is not lost by it
    runbook: str  # what to do first


def _grown(counter: str) -> str:
    """A counter that grew in the last 15 minutes, also where its first increment made the series."""
    return f"increase({counter}[15m]) > 0 or ({counter} > 0 unless {counter} offset 15m)"


RECORDS = (
    Record("plantlog:samples:rate1m", "sum by (plant, source) (rate(plantlog_samples_total[1m]))"),
    Record("plantlog:written_rows:rate1m", "sum by (plant) (rate(plantlog_written_rows_total[1m]))"),
    Record(
        "plantlog:lag_seconds:p50_5m",
        "histogram_quantile(0.5, sum by (plant, le) (rate(plantlog_lag_seconds_bucket[5m])))",
    ),
    Record(
        "plantlog:lag_seconds:p99_5m",
        "histogram_quantile(0.99, sum by (plant, le) (rate(plantlog_lag_seconds_bucket[5m])))",
    ),
    Record("plantlog:spool_used:ratio", "plantlog_spool_bytes / plantlog_spool_max_bytes"),
    # Where the disk empties or stays as it is there is no end: at most ten years are said.
    Record(
        "plantlog:disk_left:days",
        "clamp_max(min by (plant, folder) (plantlog_disk_free_bytes)"
        " / clamp_min(max by (plant, folder) (-deriv(plantlog_disk_free_bytes[6h])), 1) / 86400, 3650)",
    ),
    Record(
        "plantlog:certificate_left:days",
        "(min by (plant, certificate) (plantlog_certificate_expiry_timestamp_seconds) - time()) / 86400",
    ),
)

ALERTS = (
    Alert(
        "PlantlogProcessDown",
        'up{job="plantlog"} == 0',
        "1m",
        "critical",
        "{{ $labels.process }} of {{ $labels.plant }} does not answer",
        "Its metrics at {{ $labels.instance }} have not been had for a minute. While a collector is away its sources "
        "are not read (the interval becomes a gap, OPC UA servers keep what their queues hold); while the writer is "
        "away the spools fill.",
        "`./plantlog status`, then `./plantlog logs {{ $labels.process }}`; `./plantlog up` starts what does not run.",
    ),
    Alert(
        "PlantlogNotScraped",
        'absent(up{job="plantlog"})',
        "5m",
        "critical",
        "Prometheus knows no process of plantlog",
        "No target of the job plantlog exists, so that no other alert of this file can fire.",
        "Write the targets anew: `./plantlog targets`.",
    ),
    Alert(
        "PlantlogDatabaseUnreachable",
        'plantlog_database_up{process="writer"} == 0',  # the other processes show the metric and never set it
        "1m",
        "critical",
        "The writer of {{ $labels.plant }} can't reach the database",
        "Nothing is lost while the spools have room: see PlantlogSpoolFilling for how long that is.",
        "`./plantlog logs writer` has the server's words; `./plantlog logs postgres` the server's own.",
    ),
    Alert(
        "PlantlogLagHigh",
        "plantlog:lag_seconds:p50_5m > 10",
        "5m",
        "warning",
        "Samples of {{ $labels.plant }} reach the table {{ $value | humanizeDuration }} after their source time",
        "Half of the batches of the last five minutes were later than that. Either the writer does not keep up "
        "(then spools grow), or a source's clock is behind (then an event clock_skew says so).",
        "`./plantlog status` shows lag and spool depth by process; `./plantlog ask timeline --from 1h` the events.",
    ),
    Alert(
        "PlantlogOverloaded",
        'plantlog_overloaded{process="maintenance"} == 1',  # the other processes show the metric and never set it
        "5m",
        "warning",
        "{{ $labels.plant }} has had more to do than its machine can for five minutes",
        "Samples reach the table late, or devices are polled less often than configured. Nothing that was "
        "acknowledged is lost; rollups, packing, seals and statistics wait, and make up for it by themselves.",
        "`./plantlog status` says since when, what is late and what waits, the dashboard Appliance health how it went; "
        "`top` says what else runs on this machine.",
    ),
    Alert(
        "PlantlogWritesFail",
        "sum by (plant, reason) (increase(plantlog_write_failures_total[10m])) > 5",
        "5m",
        "warning",
        "Transactions of {{ $labels.plant }} fail again and again: {{ $labels.reason }}",
        "They are tried again until they succeed; what they hold stays in the spool.",
        "`./plantlog logs writer`.",
    ),
    Alert(
        "PlantlogSpoolFilling",
        "plantlog:spool_used:ratio > 0.1 and"
        " predict_linear(plantlog_spool_bytes[15m], 4 * 3600) > plantlog_spool_max_bytes",
        "5m",
        "warning",
        "The {{ $labels.spool }} spool of {{ $labels.plant }} will be full within four hours",
        "It is {{ $value | humanizePercentage }} full and has grown steadily for a quarter of an hour: more comes in "
        "than is written. When it is full, sources are held back and polls become gaps.",
        "Is the database there and fast (`./plantlog status`)? If it stays away, raise [spool] max_bytes while the "
        "disk has room.",
    ),
    Alert(
        "PlantlogSpoolNearlyFull",
        "plantlog:spool_used:ratio > 0.9",
        "1m",
        "critical",
        "The {{ $labels.spool }} spool of {{ $labels.plant }} is {{ $value | humanizePercentage }} full",
        "At 100 % OPC UA servers and gateways are held back, and Modbus polls are dropped with a gap on record.",
        "Bring the database back; until then raise [spool] max_bytes and run `./plantlog up`.",
    ),
    Alert(
        "PlantlogSpoolRefuses",
        "increase(plantlog_spool_full_total[5m]) > 0",
        "0s",
        "critical",
        "{{ $labels.process }} of {{ $labels.plant }} has no room for samples",
        "Appends were refused in the last five minutes: the spool is at its limit or its disk is full. What is missed "
        "is on record as a gap with the reason spool_full.",
        "Free the disk of the state folder, or bring the database back.",
    ),
    Alert(
        "PlantlogGapsOpen",
        "plantlog_open_gaps > 0",
        "15m",
        "warning",
        "Source {{ $labels.source }} of {{ $labels.plant }} has lacked samples for a quarter of an hour",
        "The whole source, or some of its channels, have an open gap.",
        "`./plantlog ask gaps_and_coverage --from 1h` names channels and reasons.",
    ),
    Alert(
        "PlantlogSourceDown",
        "plantlog_source_up == 0",
        "2m",
        "warning",
        "Source {{ $labels.source }} of {{ $labels.plant }} is not connected",
        "It is tried again with growing waits of at most backoff_max; the interval is on record as a gap.",
        "`./plantlog status` says why. A certificate that is not trusted, a cable, a device that is off?",
    ),
    Alert(
        "PlantlogSourceSilent",
        "plantlog_source_up == 1 unless on (plant, source)"
        " (sum by (plant, source) (rate(plantlog_samples_total[10m])) > 0)",
        "5m",
        "warning",
        "Source {{ $labels.source }} of {{ $labels.plant }} is connected and sends nothing",
        "No sample in a quarter of an hour. A plant at rest with deadbands may do so: then give this source a "
        "stale_after and silence this alert for it.",
        "Does the device's own display change? `./plantlog ask stuck_sensors --from 1h`.",
    ),
    Alert(
        "PlantlogDiskDaysLeft",
        "plantlog:disk_left:days < 7",
        "1h",
        "warning",
        'The disk of {{ $labels.folder }} ({{ $labels.plant }}) is full in {{ printf "%.1f" $value }} days',
        "As the last six hours went on.",
        "`./plantlog bench storage` says what packing saves; shorten the retention, or give it a larger disk.",
    ),
    Alert(
        "PlantlogDiskNearlyFull",
        "min by (plant, folder) (plantlog_disk_free_bytes / plantlog_disk_bytes) < 0.05",
        "5m",
        "critical",
        "The disk of {{ $labels.folder }} ({{ $labels.plant }}) has {{ $value | humanizePercentage }} left",
        "PostgreSQL stops when its disk is full; collectors go on with what ballast their spools hold.",
        "Make room: old logs, old exports; then drop the oldest days.",
    ),
    Alert(
        "PlantlogStorageDaysLeft",
        # NaN, not known, is not less; before the first measurement both are 0.
        'plantlog_storage_days_left{process="maintenance"} < 7 and on (plant)'
        ' plantlog_storage_bytes{process="maintenance"} > 0',
        "1h",
        "warning",
        'The database of {{ $labels.plant }} fills its disk in {{ printf "%.1f" $value }} days',
        "At the growth of the last days, as maintenance measures it.",
        "`./plantlog status` shows the storage; shorten [retention], set [storage] disk_budget, or take a larger disk.",
    ),
    Alert(
        "PlantlogStorageOverBudget",
        'plantlog_storage_lacking_bytes{process="maintenance"} > 0',
        "1h",
        "warning",
        "The database of {{ $labels.plant }} is {{ $value | humanize1024 }}B over its budget",
        "Nothing more can be dropped: what is left is open, not sealed, or no raw data.",
        "Raise [storage] disk_budget, or lower what is written: deadbands, intervals.",
    ),
    Alert(
        "PlantlogJobFailing",
        "plantlog_job_failing > 2",
        "5m",
        "warning",
        "Maintenance of {{ $labels.plant }}: {{ $labels.task }} has failed {{ $value }} times in a row",
        "It is tried again with growing waits. Samples are written all the same; rollups, compression, seals or "
        "retention fall behind.",
        "`./plantlog logs maintenance`; every run is in plant.job_run.",
    ),
    Alert(
        "PlantlogJobNotRun",
        "time() - plantlog_job_last_success_timestamp_seconds > 4 * 3600"
        ' or time() - plantlog_job_last_success_timestamp_seconds{task="rollups"} > 900',
        "5m",
        "warning",
        "Maintenance of {{ $labels.plant }}: {{ $labels.task }} has not succeeded for {{ $value | humanizeDuration }}",
        "Every job is due at least each hour, the rollups each ten seconds.",
        "`./plantlog status` shows the jobs; `./plantlog logs maintenance`.",
    ),
    Alert(
        "PlantlogQuarantineGrows",
        _grown("plantlog_quarantined_total"),
        "0s",
        "warning",
        "Rows of {{ $labels.plant }} were kept out of the tables: {{ $labels.reason }}",
        "They are in plant.quarantine with the reason, and the rest of their batches is in the tables.",
        "`./plantlog spool quarantine`; after the cause is mended, `./plantlog spool retry`.",
    ),
    Alert(
        "PlantlogConflicts",
        "increase(plantlog_conflicts_total[15m]) > 0",
        "0s",
        "warning",
        "Second, different values for times that were written already ({{ $labels.plant }})",
        "The first value stays; each second one is an event of type conflict. Two gateways with one name, a clock that "
        "was set back, or a replay.",
        "`./plantlog ask timeline --from 1h` lists the channels.",
    ),
    Alert(
        "PlantlogCertificateEnds",
        "plantlog:certificate_left:days < 30",
        "1h",
        "warning",
        'Certificate {{ $labels.certificate }} of {{ $labels.plant }} ends in {{ printf "%.1f" $value }} days',
        "From then on the OPC UA servers that check it, or we, refuse the connection.",
        "Renew it, and have the other side trust the new one before the old one ends.",
    ),
    Alert(
        "PlantlogCertificateEndsSoon",
        "plantlog:certificate_left:days < 3",
        "5m",
        "critical",
        'Certificate {{ $labels.certificate }} of {{ $labels.plant }} ends in {{ printf "%.1f" $value }} days',
        "From then on the OPC UA servers that check it, or we, refuse the connection.",
        "Renew it now.",
    ),
)

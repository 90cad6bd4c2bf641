"""The metrics of a process. Each is updated by the code that it measures and exported at /metrics."""

from prometheus_client import Counter, Gauge, Histogram

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

RUNS_ENQUEUED = Counter("easel_runs_enqueued", "Runs that were enqueued.")
RUNS_ENDED = Counter("easel_runs_ended", "Runs that ended on this worker, by status.", ["status"])
TAKEOVERS = Counter("easel_takeovers", "Runs taken over from a worker that stopped renewing its claim.")
CLAIMS_LOST = Counter("easel_claims_lost", "Runs that this worker abandoned because it lost their claim.")
RUNS_RELEASED = Counter("easel_runs_released", "Runs returned to the queue when this worker stopped.")
RUNS_RUNNING = Gauge("easel_runs_running", "Runs that this worker executes now.")
QUEUE_DEPTH = Gauge(
    "easel_queue_depth",
    "Runs that have not ended, by state; -1 while the database is unavailable.",
    ["state"],
)
QUEUE_SECONDS = Histogram("easel_queue_seconds", "Seconds from enqueue to claim.", buckets=_FAST)
CLAIM_SECONDS = Histogram("easel_claim_seconds", "Seconds of one claim statement.", buckets=_FAST)
APPEND_SECONDS = Histogram(
    "easel_append_seconds", "Seconds of one durable append to a run's log.", buckets=_FAST
)
SUBSCRIBERS = Gauge("easel_subscribers", "Open streams of this instance, by kind of log.", ["log"])
WATCHED_LOGS = Gauge(
    "easel_watched_logs", "Logs that this instance reads for its streams, by kind of log.", ["log"]
)
TAIL_BYTES = Gauge("easel_tail_bytes", "Estimated memory of the events that streams share.")
EVENTS_SENT = Counter("easel_events_sent", "Events sent on streams.")
STALLED = Counter("easel_streams_stalled", "Streams and downloads closed because their reader stalled.")
ARTIFACTS_SWEPT = Counter(
    "easel_artifacts_swept", "Blobs deleted because no reference to their artifact was left."
)
ROWS_PURGED = Counter(
    "easel_rows_purged", "Rows deleted of deleted sessions and canvases, by kind.", ["kind"]
)
ACTIONS_RUNNING = Gauge("easel_actions_running", "Canvas actions that this instance executes now.")
ACTIONS_ABANDONED = Gauge(
    "easel_actions_abandoned",
    "Tools that still run here although their action was cancelled or timed out.",
)
ACTIONS_ENDED = Counter("easel_actions_ended", "Canvas actions that ended here, by status.", ["status"])
NODES = Gauge("easel_nodes", "Tool nodes connected to this instance.")
REFRESHES = Counter("easel_refreshes", "Runs of refresh jobs on this instance, by outcome.", ["outcome"])
SANDBOX_CLEANUPS = Counter(
    "easel_sandbox_cleanups",
    "Session folders deleted because they were not used for their time to live.",
)
SANDBOX_CLEANUP_FAILURES = Counter(
    "easel_sandbox_cleanup_failures", "Session folders that could not be deleted."
)
AUDIT_NOT_STORED = Counter(
    "easel_audit_not_stored", "Audit records that could not be stored and were only logged."
)
REQUESTS = Counter("easel_http_requests", "Requests answered.", ["method", "route", "status"])
REQUEST_SECONDS = Histogram(
    "easel_http_seconds", "Seconds to the end of a response, without streams.", ["route"], buckets=_FAST
)

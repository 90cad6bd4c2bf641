"""What an operator can watch, each with its sentence. Counted where it happens, read by /metrics."""

from prometheus_client import Counter, Gauge, Histogram

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

RUNS_ENQUEUED = Counter("easel_runs_enqueued", "Runs that were stored in the queue.")
RUNS_ENDED = Counter("easel_runs_ended", "Runs that this worker brought to an end.", ["status"])
TAKEOVERS = Counter("easel_takeovers", "Runs taken over from a worker that was lost.")
CLAIMS_LOST = Counter("easel_claims_lost", "Runs that this worker had to give up.")
RUNS_RELEASED = Counter("easel_runs_released", "Runs returned to the queue by a clean stop.")
RUNS_RUNNING = Gauge("easel_runs_running", "Runs that this worker executes now.")
QUEUE_DEPTH = Gauge(
    "easel_queue_depth",
    "Runs that have not ended, by where they stand; -1 while the database is away.",
    ["state"],
)
QUEUE_SECONDS = Histogram("easel_queue_seconds", "From enqueue to the claim.", buckets=_FAST)
CLAIM_SECONDS = Histogram("easel_claim_seconds", "One claim statement.", buckets=_FAST)
APPEND_SECONDS = Histogram("easel_append_seconds", "One durable append to a run's log.", buckets=_FAST)
SUBSCRIBERS = Gauge(
    "easel_subscribers", "Open streams of this instance, by the kind of log they tail.", ["log"]
)
WATCHED_LOGS = Gauge("easel_watched_logs", "Logs that this instance reads for its streams, by kind.", ["log"])
EVENTS_SENT = Counter("easel_events_sent", "Events that went out on streams.")
STALLED = Counter("easel_streams_stalled", "Streams cut because their reader took nothing.")
ARTIFACTS_SWEPT = Counter(
    "easel_artifacts_swept", "Blobs of artifacts that nothing referred to any more, removed."
)
ACTIONS_RUNNING = Gauge("easel_actions_running", "Actions of canvases that this instance carries out now.")
ACTIONS_ABANDONED = Gauge(
    "easel_actions_abandoned",
    "Tools that still run here, though their actions were stopped or their time is over.",
)
ACTIONS_ENDED = Counter("easel_actions_ended", "Actions of canvases that came to an end here.", ["status"])
NODES = Gauge("easel_nodes", "Tool nodes that are connected to this instance.")
REFRESHES = Counter("easel_refreshes", "Times that a canvas's refresh job came up here.", ["outcome"])
SANDBOX_CLEANUPS = Counter(
    "easel_sandbox_cleanups",
    "Folders of sessions removed because nobody had used them for their time to live.",
)
SANDBOX_CLEANUP_FAILURES = Counter(
    "easel_sandbox_cleanup_failures", "Times that a session's folder could not be removed."
)
AUDIT_NOT_STORED = Counter(
    "easel_audit_not_stored", "Records that the store did not take and that are in the log alone."
)
REQUESTS = Counter("easel_http_requests", "Answered requests.", ["method", "route", "status"])
REQUEST_SECONDS = Histogram(
    "easel_http_seconds", "Time to the end of an answer, streams left out.", ["route"], buckets=_FAST
)

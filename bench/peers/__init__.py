"""The peers: other queues on Postgres, doing an equal no-op job, each at our concurrency.

They run in an interpreter with their packages; each script fills its queue, empties it with one worker, and
prints the rate between the first start and the last finish from its own tables.
"""

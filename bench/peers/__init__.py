"""The peers: other queues on Postgres, doing an equal no-op job, each at the concurrency that we run at.

They run in an interpreter of their own, where their packages are; each script fills its queue, empties it with one worker, and prints the rate
between the first start and the last finish as its own tables tell them.
"""

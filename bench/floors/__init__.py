"""The floors: the least code that does the same durable work, on the same driver and server settings as
Easel.

None is slowed down: prepared statements, one round trip where possible, uvloop and httptools. They omit what
Easel adds: fencing, recovery, order per session, tokens, visibility, back-pressure.
"""

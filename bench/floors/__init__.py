"""The floors: the least code that does the same durable work, on the same driver and server settings as Easel's own.

None of them is crippled: prepared statements, one round trip where one suffices, uvloop and httptools. What they leave out is what Easel
adds: fencing, recovery, order per session, tokens, visibility, back-pressure.
"""

"""`easel canvas export | import | watch`: canvases as folders on this machine, carried to and from a running
Easel.
"""

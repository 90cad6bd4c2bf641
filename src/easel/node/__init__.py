"""A machine as a tool node: connects outward to a gateway, offers its tools, does what it is asked.

The client behind `easel node`.
"""

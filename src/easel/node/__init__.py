"""The client behind `easel node`: a machine that connects to a gateway, offers its tools and runs calls."""

"""`local__Fetch`: HTTP requests to the hosts that a canvas or a setting names."""

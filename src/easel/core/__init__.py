"""The domain rules, as pure functions: no await, clock or I/O. Time, ids and randomness are arguments."""

"""Side-by-side measurements: the cost of Easel next to the least code that does the same durable work.

A **floor** is that least code, on the same driver, server and database. A **peer** is another program doing
an equal job. Only ratios within one run carry over to another machine, so every row of the table is a ratio;
a bare time is shown only beside its reference.
"""

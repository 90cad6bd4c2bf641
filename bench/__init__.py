"""Side-by-side measurements: what Easel costs next to the least code that does the same durable work.

A **floor** is that least code, on the same driver, server and database. A **peer** is another program doing an equal job. Only ratios taken
within one run carry over to another machine, so every row of the table is one; a bare time stands there only beside what it is compared with.
"""

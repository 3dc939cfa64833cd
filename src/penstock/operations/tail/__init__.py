"""`penstock tail`: the changes in the log as they come. `following.py` reads and decodes, `changes.py` is what comes out."""

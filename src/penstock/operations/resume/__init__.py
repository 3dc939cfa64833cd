"""`penstock resume`: a parked table goes on.

| module | job |
|---|---|
| `plan.py` | what shall stand for the parked versions of a table, and whether the rows that were held back fit |
| `definition.py` | the table's definition: from a file, or from the server at a moment that the log has reached |
| `resume.py` | the whole: asks the run that owns the flow, or does it itself if none runs |
"""

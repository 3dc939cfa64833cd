"""`penstock state`: looks into the state of a log. `main.py` makes the group.

Every command but checkpoint only looks.
"""

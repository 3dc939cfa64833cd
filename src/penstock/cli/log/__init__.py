"""`penstock log`: looks into a log and works on one. `main.py` makes the group.

Every command but create, append, trim, offload and skip only looks.
"""

"""`penstock log`: looks into a log and works on one. One small file a command or two; `commands.py` makes the group.

Every command but create, append, trim and offload only looks.
"""

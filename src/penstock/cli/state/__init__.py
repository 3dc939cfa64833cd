"""`penstock state`: looks into the state of a log. `commands.py` makes the group of the commands in the other files.

Every command but checkpoint only looks.
"""

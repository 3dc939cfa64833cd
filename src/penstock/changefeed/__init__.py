"""Owners of a changefeed's durable facts. They live in the process of `penstock run`.

| file | what it does |
|---|---|
| `facts.py` | what is known for certain about each dispatcher, and how it is stored |
| `ranges.py` | the published ranges of the current run that still wait for rows |
| `keeper.py` | the keeper: owns progress and cursor |
| `maintainer.py` | the maintainer: creates dispatchers, begins runs, is the barrier of a DDL |
| `lag.py` | how far a changefeed is behind |
"""

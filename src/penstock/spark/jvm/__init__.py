"""Spark's JVM: how it is found, set up and started, and what is asked of it.

| file | what it does |
|---|---|
| `java.py` | the Java that Spark runs on, and how it gets Spark's settings |
| `context.py` | the settings of the context, the place of its files, its start |
| `engine.py` | Spark as jobs of independent tasks |
"""

"""Spark's JVM: how it is found, set up and started, and what is asked of it.

| file | what it does |
|---|---|
| `installed.py` | which pyspark is there |
| `java.py` | the Java that Spark runs on, and how it gets Spark's settings |
| `context.py` | the settings of the context, and the place of its files |
| `launch.py` | starts the JVM, and the context in it once everything else is there |
| `class_archive.py` | Spark's classes as Java loads them quickly, made once in the background |
| `workers_ahead.py` | the workers' parent, started beside the JVM |
| `engine.py` | Spark as jobs of independent tasks |
"""

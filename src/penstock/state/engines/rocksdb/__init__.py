"""The `rocksdb` engine: layers in memory over a RocksDB database; needs the extra `rocksdb`.

`base.py` reads a database and its checkpoints; `engine.py` writes them.
"""

"""The types of a state: how keys and values become bytes, and who wrote which bytes.

| file | what it does |
|---|---|
| `codecs.py`, `model_codecs.py` | encodings of keys and values; dataclasses and pydantic models as values |
| `descriptor.py` | names a store and says how its keys and values are written |
| `registry.py` | the stores of a state, with the codecs and schemas that they were written with |
| `evolution.py` | whether a descriptor can read what the registry says was written |
"""

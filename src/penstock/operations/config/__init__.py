"""penstock.yaml and what is made from it.

| file | what it does |
|---|---|
| `model.py` | the configuration as typed data |
| `loading.py` | reads the file, fills in environment variables, reports every problem with its line |
| `template.py` | the file that `penstock init` writes |
| `describe.py` | every setting in force, for `penstock check` |
| `run_settings.py` | the settings of a run |
"""

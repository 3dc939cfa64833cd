"""penstock.yaml and what is made from it.

| file | what it does |
|---|---|
| `model.py` | the configuration as typed data; the settings of a run, and every setting in force, from it |
| `loading.py` | reads the file, fills in environment variables, reports every problem with its line |
| `anchoring.py` | relative paths, taken from the file's own directory |
| `template.py` | the file that `penstock init` writes |
"""

"""The language of filters and computed columns.

| file | what it does |
|---|---|
| `syntax.py` | what an expression is made of, and errors that name the place in its text |
| `parser.py` | text → syntax; light, so that reading a configuration needs no Arrow |
| `types.py` | what kinds of values there are, and which meet |
| `columns.py` | a column in its physical form ↔ a value of the language |
| `arithmetic.py` | + - * / on columns; what does not fit is NULL |
| `binding.py` | syntax + the columns of a table → a function of Arrow columns |
| `functions.py` | the functions by their names |
"""

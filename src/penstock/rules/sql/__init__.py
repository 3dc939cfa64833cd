"""`sql:` of a rule, as far as no Spark is needed: what its text may say, and its place on the way of the rows."""

"""What each training framework can launch: one table, read by the search and by the validator.

* `table`: the rules of each framework, with sources (`table.yaml`).
* `models`: which models a framework's code trains (`models.yaml`).
* `rules`: the table asked about decisions of an instance; what the space is built with.

The exporters refuse plans on their own account; `tests/test_frameworks.py` holds both against each other.
"""

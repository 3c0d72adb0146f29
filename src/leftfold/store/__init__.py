"""The stores: where the log lives, and the rows that are derived from it.

query.py      what an operation is: a generator of named queries
ops.py        commands on jobs: load, decide, append; and the short cuts of owners
creating.py   operations that make jobs
claiming.py   operations that give jobs away
requests.py   what was answered to requests that speak of no one job
views.py      reading
rows.py       what a job's row says: a function of its log
migrate.py    numbered files, applied under a lock
sqlite/       driver, queries.sql, migrations/
postgres/     driver, queries.sql, migrations/
"""

"""The pure core: what a job is, what may happen to it, and who decides.

Nothing here reads a clock, a database or a random number. Three questions, three layers:

    decide(job, command, now)   which event?         policy      decide.py, answers.py, endings.py
    TABLE                       may it happen?       data        lifecycle.py
    evolve(job, record)         what is it then?     reducer     job.py

The stores, the model checker and every verifier call these same functions.
"""

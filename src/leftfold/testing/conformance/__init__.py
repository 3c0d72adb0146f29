"""The store conformance kit: what a store has to do, as tests that any store can be held to.

    pytest --pyargs leftfold.testing.conformance --store-url sqlite:///x.db
    pytest --pyargs leftfold.testing.conformance --store-url postgresql://user@host/database --store-mode async

worlds.py     where a case plays: new and empty for each; a store of your own brings its World by a hook
bridge.py     an AsyncEngine that is called like an Engine, so that a case is written once
scene.py      an engine, its clock, and the ways that lead a job to any state
audit.py      what is checked after every case, whatever it did
matrix.py     every operation in every state: what the lifecycle's table expects of it
test_*.py     the cases: one class per operation of the engine, and more for what runs across them
"""

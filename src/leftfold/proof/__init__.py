"""The proof: an exhaustive model checker over the real core, and the refinement check of every dialect.

scope.py        how much is searched
world.py        jobs, workers with their memories, and a clock
moves.py        everything that anybody can do in a world
invariants.py   what must hold, edge by edge and state by state
search.py       breadth first, until nothing new is found
refinement.py   each dialect against its seed's own table
"""

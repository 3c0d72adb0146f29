"""The proof: an exhaustive model checker over the real core, and the refinement check of every dialect.

- `world.py`: jobs, workers with their memories, and a clock; and how much of it is searched
- `moves.py`: everything that anybody can do in a world
- `invariants.py`: what must hold of every accepted move; `duties.py`: what must happen, and be heard
- `guards.py`: what must hold of every state and every refusal
- `search.py`: breadth first, until nothing new is found; `parallel.py`: several scopes at once
- `refinement.py`: each dialect against its seed's own table
- `verdict.py`: all of it together
"""

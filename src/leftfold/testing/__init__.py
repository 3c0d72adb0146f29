"""For tests, ours and yours: a PostgreSQL of its own, a clock to set, and the kit that proves a store."""

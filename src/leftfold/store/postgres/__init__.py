"""The store in a PostgreSQL schema."""

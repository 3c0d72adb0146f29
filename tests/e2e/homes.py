"""A home for the jobs of one test, spoken to as people do: by the command, in a process of its own."""

from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from tests.e2e.command import Ran, run, watched

import leftfold
from leftfold import Engine


class Home(NamedTuple):
    """Where a store is, or could be."""

    url: str
    schema: str
    folder: Path

    @property
    def is_file(self) -> bool:
        return self.url.startswith("sqlite:")

    @property
    def file(self) -> Path:
        return self.folder / "jobs.db"

    @property
    def env(self) -> dict[str, str]:
        return {"LEFTFOLD_DATABASE_URL": self.url, "LEFTFOLD_SCHEMA": self.schema, "LEFTFOLD_ACTOR": "tester"}

    def run(self, *arguments: str, stdin: bytes | None = None) -> Ran:
        return run(*arguments, cwd=self.folder, env=self.env, stdin=stdin)

    def watched(self, *arguments: str, columns: int = 120, **env: str) -> Ran:
        return watched(*arguments, env={**self.env, **env}, columns=columns)

    def open(self, **settings: Any) -> Engine:
        return leftfold.open(self.url, schema=self.schema, **{"actor": "ann", **settings})

    def migrated(self) -> "Home":
        leftfold.migrate(self.url, schema=self.schema)
        return self

    def sql(self, statement: str) -> None:
        """Do something to the tables that no command does. `{schema}` stands in front of a table."""
        if self.is_file:
            from leftfold.store.sqlite.library import sqlite  # noqa: PLC0415 - the module of this process

            connection = sqlite.connect(self.file)
            connection.executescript(statement.replace("{schema}.", "leftfold_"))
            connection.close()
        else:
            with psycopg.connect(self.url, autocommit=True) as connected:
                connected.execute(statement.replace("{schema}", f'"{self.schema}"').encode())

    def tamper(self, *statements: str) -> None:
        """Change what stands on the log or in a row, past the door that is left for maintenance."""
        who = "INSERT INTO {schema}.maintenance (at, actor, reason) VALUES (1, 'mallory', 'a test')"
        ended = []
        if self.is_file:
            who = who.replace("reason)", "reason, open)").replace("test')", "test', 1)")
            ended = ["UPDATE {schema}.maintenance SET open = 0 WHERE open"]
        self.sql(";\n".join(["BEGIN", who, *statements, *ended, "COMMIT"]))

    def trace(self) -> object:
        """Give everything that is there, to be compared with what is there later."""
        if self.is_file:
            return {file.relative_to(self.folder): _content(file) for file in sorted(self.folder.rglob("*"))}
        with psycopg.connect(self.url, autocommit=True) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (self.schema,))
            return {
                name: connection.execute(f'SELECT * FROM "{self.schema}"."{name}" ORDER BY 1, 2'.encode()).fetchall()  # noqa: S608
                for (name,) in tables.fetchall()
            }


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None

"""Render the package `leftfold.aengine` from `leftfold.engine`: the same, async. A test compares."""

import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "leftfold" / "engine"
TARGET = SOURCE.with_name("aengine")
NOTE = "# Rendered from leftfold/engine by `make render`: change that one.\n"

#: These do no I/O, and stay as they are.
PLAIN = "__init__|_only|_ring"
AWAITED = (
    "_write|_read|_own|_own_all|_settle|_tell|_tell_many|_create|_many|_page|_freeze|_rebuild|_bring_in|enqueue_many|_enqueue_new|feed|acknowledge|close|"
    "store.run|store.run_within|store.close"
)


def render(text: str) -> str:
    """Give the async form of a module."""
    text = re.sub(rf"^    def (?!(?:{PLAIN})\b)(\w+)", r"    async def \1", text, flags=re.MULTILINE)
    text = text.replace("def __enter__", "def __aenter__").replace("def __exit__", "def __aexit__")
    text = re.sub(rf"\bself\.({AWAITED})\(", r"await self.\1(", text)
    text = text.replace("leftfold.engine", "leftfold.aengine").replace("class Engine", "class AsyncEngine")
    return NOTE + re.sub(r"\b(Session|Iterator)\b", r"Async\1", text)


def rendered() -> dict[Path, str]:
    """Give every file of the package as it is to be."""
    files = {TARGET / file.name: render(file.read_text(encoding="utf-8")) for file in sorted(SOURCE.glob("*.py"))}
    entry = files[TARGET / "__init__.py"]
    doc = '"""The engine for asyncio: `leftfold.engine` with `await`. See there."""'
    files[TARGET / "__init__.py"] = re.sub(r'""".*?"""', doc, entry, count=1, flags=re.DOTALL)
    return files


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for path, text in rendered().items():
        path.write_text(text, encoding="utf-8")

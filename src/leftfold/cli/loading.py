"""Finding the app that a command line names: `module:app`, from the working directory."""

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from leftfold.app import App
from leftfold.core.errors import ValidationError


def load_app(name: str) -> App:
    """Import an app; what is wrong with its name, or with its module, is said in a line."""
    module_name, colon, attribute = name.partition(":")
    if not module_name or (colon and not attribute):
        raise click.UsageError(f"-A {name!r} is not an app: write module:app, for example jobs:app")
    if module_name.endswith(".py") or not all(part.isidentifier() for part in module_name.split(".")):
        meant = Path(module_name).name.removesuffix(".py").lstrip(".")
        hint = f"{meant}:{attribute or 'app'}" if meant.isidentifier() else "module:app"
        raise click.UsageError(f"-A {name!r} names no module: write {hint}, as you would import it")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _imported(module_name)
    found: Any = module
    for part in (attribute or "app").split("."):
        found = getattr(found, part, None)
    if isinstance(found, App):
        return found
    apps = sorted(each for each, value in vars(module).items() if isinstance(value, App))
    hint = f": write {module_name}:{apps[0]}" if apps else ", and no other App either"
    raise click.UsageError(f"{module_name} has no App called {attribute or 'app'!r}{hint}")


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and (name == problem.name or name.startswith(f"{problem.name}.")):
            raise click.UsageError(f"there is no module {name!r} in {Path.cwd()}, nor is it installed") from problem
        raise _broken(name, problem) from problem
    except SyntaxError as problem:  # it says where by itself
        raise ValidationError(f"{name} cannot be imported: SyntaxError: {problem}") from problem
    except (Exception, SystemExit) as problem:
        raise _broken(name, problem) from problem


def _broken(name: str, problem: BaseException) -> ValidationError:
    """Say why a module cannot be imported, and where in the user's own code that is."""
    frames = traceback.extract_tb(problem.__traceback__)
    here = [frame for frame in frames if Path(frame.filename).is_relative_to(Path.cwd())]
    where = (here or frames)[-1]
    return ValidationError(
        f"{name} cannot be imported: {type(problem).__name__}: {problem} ({where.filename}, line {where.lineno})"
    )

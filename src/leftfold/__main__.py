"""`python -m leftfold` is the `leftfold` command."""

from leftfold.cli import main

main()

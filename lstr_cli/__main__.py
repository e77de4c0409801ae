"""`python -m lstr_cli`: the `lstr` command."""

from lstr_cli.main import main

if __name__ == "__main__":
    main()

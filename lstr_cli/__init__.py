"""Words to jobs: the `lstr` command."""

"""Reading and writing of arrays and files."""

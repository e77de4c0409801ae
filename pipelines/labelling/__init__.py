"""Labels that a person makes on a page: a project of videos, its journal and its file."""

"""Pages, figures and videos that a person opens."""

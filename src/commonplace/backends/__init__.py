"""Where entries are kept. A backend knows entries, keywords and vectors; it knows nothing of files or threads."""

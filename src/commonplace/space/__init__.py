"""The namespace-bound handle and the rules of each kind of memory: files, records, threads."""

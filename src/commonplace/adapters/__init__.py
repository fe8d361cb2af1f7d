"""Our tools in the form that other frameworks expect. Each module needs the package of its framework (an extra)."""

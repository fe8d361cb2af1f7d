"""Our tools in the shapes that other programs expect; each module needs that program's package, an extra."""

"""How things look between a service and its clients: JSON forms of what the library gives, and of its errors.

Both sides use the same code, so that a thing comes back equal to what was sent.
"""

"""Adapters: one module a foreign system. An adapter only translates; it must never decide what is legal, nor write."""

"""The pure core: bytes, events, folds and the rules between them. It must never do I/O, read a clock or draw a random
number."""

"""The command line. It must never decide anything: every command here calls a verb of the engine and shows what it
gave."""

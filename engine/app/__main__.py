"""``python -m engine.app``: the same as the command ``refold``. It must never do anything else."""

from engine.app.cli import main

if __name__ == "__main__":
    main()

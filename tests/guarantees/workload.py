"""A fixed workload, run in a process of its own and told as JSON: ``python -m tests.guarantees.workload``.

Nothing in it may depend on the process it runs in; that is what it is for.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from random import Random

from tests.guarantees.domain import DOMAINS, Domain, play


def told() -> dict[str, dict[str, object]]:
    """Return, for each domain, everything about the workload's run that must be the same everywhere."""
    return {domain.name: _told(domain) for domain in DOMAINS}


def _told(domain: Domain) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder, domain.store(Path(folder) / "refold.db") as store:
        run = store.run("läufe", actor="İstanbul ß")
        log = play(domain, Random(21), run, 40)
        run.checkpoint()
        log += play(domain, Random(22), run, 40)
        run.checkpoint()
        log += play(domain, Random(23), run, 10)
        return {
            "log": log,
            "digest": run.digest(),
            "restored": store.run("läufe").digest(),
            "link": run.link(),
            "lines": list(store.export_lines("läufe")),
            "checkpoints": [
                (at, found[1].hex())
                for at in store.checkpoints.positions("läufe")
                if (found := store.checkpoints._recorder.read("läufe", at)) is not None
            ],
            "fingerprint": domain.model.fingerprint.hex(),
        }


if __name__ == "__main__":
    print(json.dumps(told()))

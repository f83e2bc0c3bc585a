"""Two clients race a database and a cache until they disagree; then the same with capture, until they never do.

python examples/dual_write/run.py
"""

import json
import tempfile
from pathlib import Path

from both import until_they_disagree
from captured import never_disagree

ROUNDS = 50


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        took, wrong = until_they_disagree(Path(folder))
        print(f"Writing to both: after {took} rounds, database and cache disagree for good:")
        for item, ((price, version), (cached, older)) in wrong.items():
            print(f"  {item}: the database says {price} (version {version}), the cache {cached} (version {older})")
        agreed, went_back = never_disagree(Path(folder), rounds=ROUNDS)
        print(f"With capture: the same after {agreed} of {ROUNDS} rounds; prices that went back: {went_back}")
    told = {"disagreed_after": took if wrong else None, "rounds": ROUNDS, "agreed": agreed, "went_back": went_back}
    print(json.dumps(told))


if __name__ == "__main__":
    main()

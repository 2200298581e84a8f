"""Stands in for claimlib where only the end of a command counts: FOLDER/codes.json has the exit
codes of its calls, by command; FOLDER/calls.jsonl gets what it was called with.

python ends.py FOLDER WORDS…
"""

import json
import os
import signal
import sys
from pathlib import Path


def main():
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    codes = json.loads((folder / "codes.json").read_text(encoding="utf-8"))
    (code, *later) = codes.get(words[0]) or [0]
    codes[words[0]] = later
    (folder / "codes.json").write_text(json.dumps(codes), encoding="utf-8")
    with (folder / "calls.jsonl").open("a", encoding="utf-8") as calls:
        calls.write(json.dumps([words, os.environ.get("REDIS_PASSWORD")]) + "\n")
    print(f"claimlib: this ends with {code}", file=sys.stderr, flush=True)
    if code < 0:
        os.kill(os.getpid(), signal.Signals(-code))
    print(json.dumps({"command": words[0], "run_id": "r", "counts": {}, "groups": [{}]}))
    sys.exit(code)


if __name__ == "__main__":
    main()

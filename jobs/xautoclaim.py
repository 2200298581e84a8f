"""Apply XAUTOCLAIM to a store; conf/local.toml shows what [xautoclaim] of --config can say.

spark-submit --properties-file conf/spark-defaults.conf jobs/xautoclaim.py STORE --min-idle 15m …
"""

import sys
from pathlib import Path

from claimlib import exits, report, terminal
from claimlib.arguments import JobParser
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.config import XautoclaimSection, keys_of, load, option_of, requests_of
from claimlib.layout import as_text
from claimlib.model import parse_run_id
from claimlib.session import open_session
from claimlib.store import Store
from claimlib.times import parse_instant_ms


def main() -> int:
    """Run the job; the exit code."""
    parser = JobParser("Apply XAUTOCLAIM to all groups of a store.")
    parser.add_argument("store", help="a folder, a URL, or catalog.schema")
    parser.add_argument("--config", type=Path, help="TOML; options go before it")
    for key in sorted({*keys_of(XautoclaimSection)} - {"justid"}):
        parser.add_argument(option_of(key), help="as in [xautoclaim] of --config")
    parser.add_argument("--policy", type=Path, help="TOML with a [[request]] per kind of group")
    parser.add_argument("--run-id", type=parse_run_id, help="a repeat changes nothing")
    parser.add_argument("--now", type=parse_instant_ms, help="ISO 8601 with a zone, or ms")
    parser.add_argument("--justid", action="store_const", const=True, help="leave counts alone")
    parser.add_argument("--dry-run", action="store_true", help="decide and show, write nothing")
    parser.add_argument("--incremental", action="store_true", help="look at what may matter")
    parser.add_limit("groups")
    asked = vars(parser.parsed())
    names = ("store", "config", "policy", "run_id", "limit")
    where, config, policy, run_id, limit = (asked.pop(name) for name in names)
    how = {name: asked.pop(name) for name in ("dry_run", "incremental")}
    now_ms = asked.pop("now")
    request = requests_of(load(config, xautoclaim=asked), policy, asked)
    store = Store.open(open_session(app_name="claimlib xautoclaim"), where)
    reply = xautoclaim(store, request, run_id=run_id, now_ms=now_ms, **how)
    terminal.out(as_text(report.of_reply(reply, limit)))
    terminal.say(*report.refusals(reply))
    return exits.SOME_REFUSED if reply.counts["refused"] else exits.DONE


if __name__ == "__main__" and (code := exits.ending(main)):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure

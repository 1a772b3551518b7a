"""Turns Autobahn's index of results into a table, and fails unless every case passed.

Usage: results.py INDEX_JSON TABLE_TXT (Python 2.7 or 3)
"""

from __future__ import print_function

import collections
import json
import sys

# NON-STRICT is not among them: it means a late failure or a tolerated fault, and we want neither.
PASSED = {"OK", "INFORMATIONAL"}

# Groups 1 to 10 have 301 cases; fewer in the index means that the suite stopped early.
CASES_MIN = 301


def main(index_path, table_path):
    with open(index_path) as index:
        (cases,) = json.load(index).values()
    rows = [(name, case["behavior"], case["behaviorClose"]) for name, case in cases.items()]
    rows.sort(key=lambda row: [int(part) for part in row[0].split(".")])
    with open(table_path, "w") as table:
        for row in [("# case", "behaviour", "close")] + rows:
            table.write("{:<10}{:<15}{}\n".format(*row))

    counts = collections.Counter(behaviour for _, behaviour, _ in rows)
    print(", ".join("{} {}".format(count, behaviour) for behaviour, count in counts.most_common()))
    failed = [row for row in rows if not PASSED.issuperset(row[1:])]
    for name, behaviour, close in failed:
        print("case {}: {}, close {}".format(name, behaviour, close), file=sys.stderr)
    if len(rows) < CASES_MIN:
        print("only {} of {} cases ran".format(len(rows), CASES_MIN), file=sys.stderr)
    return 1 if failed or len(rows) < CASES_MIN else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

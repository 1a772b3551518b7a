"""Turns Autobahn's index of results into a table, and fails unless every case passed.

Usage: results.py INDEX_JSON TABLE_TXT CASES_MIN (Python 2.7 or 3). Fewer cases in the index mean that the suite stopped early.
"""

from __future__ import print_function

import collections
import json
import sys

# NON-STRICT is not among them: it means a late failure or a tolerated fault, and we want neither.
PASSED = {"OK", "INFORMATIONAL"}


def main(index_path, table_path, cases_min):
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
    if len(rows) < int(cases_min):
        print("only {} of {} cases ran".format(len(rows), cases_min), file=sys.stderr)
    return 1 if failed or len(rows) < int(cases_min) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

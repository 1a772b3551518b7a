"""Turns Autobahn's indexes of results into a table, and fails unless every case passed in every run.

Usage: results.py TABLE_TXT CASES_MIN NAME=INDEX_JSON... (Python 2.7 or 3). Fewer cases in an index mean that the suite stopped early.
"""

from __future__ import print_function

import collections
import json
import sys

# NON-STRICT is not among them: it means a late failure or a tolerated fault, and we want neither.
PASSED = ["OK", "INFORMATIONAL"]


def cases_of(index_path):
    """The behaviour of each case, and that of its close."""
    with open(index_path) as index:
        (cases,) = json.load(index).values()
    return {name: (case["behavior"], case["behaviorClose"]) for name, case in cases.items()}


def has_passed(case):
    return set(PASSED).issuperset(case)


def write_table(table_path, runs):
    """One row for each case, two columns for each run."""
    names = {name for _, cases in runs for name in cases}
    with open(table_path, "w") as table:
        table.write("# case    " + "".join("{:<15}{:<15}".format(run, "close") for run, _ in runs).rstrip() + "\n")
        for name in sorted(names, key=lambda name: [int(part) for part in name.split(".")]):
            columns = [column for _, cases in runs for column in cases.get(name, ("MISSING", "MISSING"))]
            table.write("{:<10}".format(name) + "".join("{:<15}".format(column) for column in columns).rstrip() + "\n")


def main(table_path, cases_min, *indexes):
    runs = [(run, cases_of(path)) for run, path in (index.split("=", 1) for index in indexes)]
    write_table(table_path, runs)
    status = 0
    print("{:<6}{:>7}{:>8}{:>8}  {}".format("run", "cases", "passed", "failed", "behaviour"))
    for run, cases in runs:
        failed = sorted(name for name in cases if not has_passed(cases[name]))
        counts = collections.Counter(behaviour for behaviour, _ in cases.values())
        behaviour = ", ".join("{} {}".format(count, behaviour) for behaviour, count in counts.most_common())
        print("{:<6}{:>7}{:>8}{:>8}  {}".format(run, len(cases), len(cases) - len(failed), len(failed), behaviour))
        for name in failed:
            print("{}, case {}: {}, close {}".format(run, name, *cases[name]), file=sys.stderr)
        if len(cases) < int(cases_min):
            print("{}: only {} of {} cases ran".format(run, len(cases), cases_min), file=sys.stderr)
        if failed or len(cases) < int(cases_min):
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

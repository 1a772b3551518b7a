"""Prints the reports of `encke bench jitter` and `avalanche` as one table. Fails if one is missing, or does not hold."""

import json
import sys

COLUMNS = ["scenario", "transport", "deliveries", "delivered", "lost", "doubled", "out of order", "gaps", "sessions went on", "began again", "holds"]


def row(path):
    with open(path) as file:
        report = json.load(file)
    cells = [report["scenario"], report["label"]]
    if not report["trials"]:
        return cells + ["–"] * 8 + ["no: " + "; ".join(report["reasons"])]
    trial = report["trials"][0]
    faults, expected = trial["faults"], max(trial["expected"], 1)
    figures = {figure["name"]: round(figure["value"]) for figure in trial["figures"]}
    cells += [f"{expected:,}", f"{100 * (expected - min(faults['lost'], expected)) / expected:.6g} %"]
    cells += [faults[name] for name in ("lost", "doubled", "reordered")] + [figures["gaps reported"]]
    cells += [figures.get(jitter, figures.get(avalanche)) for jitter, avalanche in SESSIONS]
    return cells + ["yes" if report["holds"] else "no: " + "; ".join(trial["reasons"] + report["reasons"])]


# The names of figures in the two scenarios.
SESSIONS = [("sessions resumed", "back with a connect"), ("sessions renewed", "back with a handshake")]

holds = True
rows = [COLUMNS]
for path in sys.argv[1:]:
    try:
        rows.append([str(cell) for cell in row(path)])
    except OSError:
        rows.append([path] + ["–"] * 9 + ["no: there is no report"])
    holds &= rows[-1][-1] == "yes"
widths = [max(len(line[column]) for line in rows) for column in range(len(COLUMNS))]
for number, line in enumerate(rows):
    print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")
    if number == 0:
        print("| " + " | ".join("-" * width for width in widths) + " |")
sys.exit(0 if holds else 1)

"""Counts the test cases of finished `bazel test` runs, and the checks.

Usage: count_tests.py RECORD=CODE...

RECORD is what --build_event_json_file wrote, or, named *.txt, what tools/check.sh
printed, or, named *.xml, what pytest --junitxml wrote; CODE is the exit code of that run.
Prints what failed, with the end of what it said, and then one line, "N passed, N failed"
(and ", N skipped" if any); exits with 1 if a test failed or a build broke. A target that
ended badly without a failed case in its test.xml, as after a crash, counts as one failed.
"""

import collections
import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree


class Counts(collections.Counter):
    def line(self):
        text = f"{self['passed']} passed, {self['failed']} failed"
        return text + (f", {self['skipped']} skipped" if self["skipped"] else "")


SHOWN_LINES = 30


def tell(what, said=""):
    """Prints what failed, and below it what it said: its lines FAILED and the last ones."""
    print(f"psring: failed: {what}")
    lines = said.splitlines()
    for at, line in enumerate(lines):
        if at >= len(lines) - SHOWN_LINES or line.startswith("FAILED"):
            print(f"  {line}")


def name_of(case):
    return ".".join(filter(None, [case.get("classname"), case.get("name")]))


def said_by(case):
    failures = case.findall("failure") + case.findall("error")
    return "\n".join((f.text or "").strip() for f in failures)


def outcome(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.get("result") in ("skipped", "suppressed")
    return "skipped" if skipped or case.find("skipped") is not None else "passed"


def read_cases(path):
    """The cases of one test.xml; none if it cannot be read."""
    try:
        return list(xml.etree.ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError):
        return []


def read_log(path):
    try:
        with open(path, errors="replace") as log:
            return log.read()
    except OSError:
        return ""


def count_result(label, result):
    """The cases of one run of one target (or of one shard of it)."""
    outputs = {
        output["name"]: urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
        for output in result.get("testActionOutput", [])
    }
    cases = read_cases(outputs.get("test.xml", ""))
    counts = Counts(outcome(case) for case in cases)
    ended_well = result.get("status") in ("PASSED", "FLAKY")
    named = [case for case in cases if outcome(case) == "failed" and said_by(case)]
    for case in named:
        tell(f"{label}: {name_of(case)}", said_by(case))
    if not ended_well and not named:
        tell(f"{label}: {result.get('status')}", read_log(outputs.get("test.log", "")))
    if not ended_well and not counts["failed"]:
        counts["failed"] += 1
    if ended_well and not sum(counts.values()):
        counts["passed"] += 1  # a test that is not gtest's
    return counts


def warn_of_limit(label, limit_s, result):
    """A host that is busier would end it."""
    took_s = int(result.get("testAttemptDurationMillis", 0)) / 1000
    if took_s > limit_s / 2:
        print(f"psring: {label} took {took_s:.0f} s of at most {limit_s} s: give it a larger size")


def count_record(path, code):
    targets, limits_s, results = set(), {}, {}
    if os.path.exists(path):
        with open(path) as lines:
            for event in map(json.loads, lines):
                ident = event["id"]
                if event.get("configured", {}).get("testSize"):
                    targets.add(ident["targetConfigured"]["label"])
                if "testTimeoutSeconds" in event.get("completed", {}):
                    limits_s[ident["targetCompleted"]["label"]] = int(event["completed"]["testTimeoutSeconds"])
                if "testResult" in event:
                    of = ident["testResult"]
                    key = (of["label"], of.get("run"), of.get("shard"))
                    results[key] = event["testResult"]  # the last attempt
    counts = Counts()
    for (label, _, _), result in results.items():
        counts.update(count_result(label, result))
        if label in limits_s:
            warn_of_limit(label, limits_s[label], result)
    for target in sorted(targets - {label for label, _, _ in results}):
        tell(f"{target} did not run")
        counts["failed"] += 1
    if code != 0 and not counts["failed"]:
        tell(f"bazel ended with {code}")
        counts["failed"] += 1
    return counts


def count_checks(path, code):
    """The lines of tools/check.sh; details are indented."""
    words = {"ok": "passed", "FAILED": "failed", "skipped": "skipped"}
    with open(path) as file:
        lines = [line.rstrip("\n") for line in file]
    counts = Counts(words[line.split()[0]] for line in lines if line[0] != " ")
    if counts["failed"]:
        tell("the checks", "\n".join(line for line in lines if line[0] in " F"))
    if code != 0 and not counts["failed"]:
        tell(f"the checks ended with {code}")
        counts["failed"] += 1
    return counts


def count_pytest(path, code):
    cases = read_cases(path)
    counts = Counts(outcome(case) for case in cases)
    for case in cases:
        if outcome(case) == "failed":
            tell(name_of(case), said_by(case))
    if code != 0 and not counts["failed"]:
        tell(f"pytest ended with {code}")
        counts["failed"] += 1
    return counts


def main(args):
    total = Counts()
    for record in args:
        path, _, code = record.rpartition("=")
        kinds = {".txt": count_checks, ".xml": count_pytest}
        count = kinds.get(os.path.splitext(path)[1], count_record)
        total.update(count(path, int(code)))
    print(total.line())
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

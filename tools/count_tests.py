"""Counts the test cases of finished `bazel test` runs, and the checks.

Usage: count_tests.py RECORD=CODE...

RECORD is what --build_event_json_file wrote, or, named *.txt, what tools/check.sh
printed, or, named *.xml, what pytest --junitxml wrote; CODE is the exit code of that run.
Prints one line, "N passed, N failed" (and ", N skipped" if any); exits with 1
if a test failed or a build broke. A target that ended badly without a failed
case in its test.xml, as after a crash, counts as one failed.
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


def outcome(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.get("result") in ("skipped", "suppressed")
    return "skipped" if skipped or case.find("skipped") is not None else "passed"


def count_xml(path):
    """The cases of one test.xml; none if it cannot be read."""
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError):
        return Counts()
    return Counts(outcome(case) for case in root.iter("testcase"))


def count_result(result):
    """The cases of one run of one target (or of one shard of it)."""
    counts = Counts()
    for output in result.get("testActionOutput", []):
        if output["name"] == "test.xml":
            path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
            counts = count_xml(path)
    ended_well = result.get("status") in ("PASSED", "FLAKY")
    if not ended_well and not counts["failed"]:
        counts["failed"] += 1
    if ended_well and not sum(counts.values()):
        counts["passed"] += 1  # a test that is not gtest's
    return counts


def count_record(path, code):
    targets, results = set(), {}
    if os.path.exists(path):
        with open(path) as lines:
            for event in map(json.loads, lines):
                ident = event["id"]
                if event.get("configured", {}).get("testSize"):
                    targets.add(ident["targetConfigured"]["label"])
                if "testResult" in event:
                    of = ident["testResult"]
                    key = (of["label"], of.get("run"), of.get("shard"))
                    results[key] = event["testResult"]  # the last attempt
    counts = Counts()
    for result in results.values():
        counts.update(count_result(result))
    for target in sorted(targets - {label for label, _, _ in results}):
        print(f"psring: {target} did not run")
        counts["failed"] += 1
    if code != 0 and not counts["failed"]:
        print(f"psring: bazel ended with {code}")
        counts["failed"] += 1
    return counts


def count_checks(path, code):
    """The lines of tools/check.sh; details are indented."""
    words = {"ok": "passed", "FAILED": "failed", "skipped": "skipped"}
    with open(path) as lines:
        counts = Counts(words[line.split()[0]] for line in lines if line[0] != " ")
    if code != 0 and not counts["failed"]:
        print(f"psring: the checks ended with {code}")
        counts["failed"] += 1
    return counts


def count_pytest(path, code):
    counts = count_xml(path)
    if code != 0 and not counts["failed"]:
        print(f"psring: pytest ended with {code}")
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

#!/usr/bin/env python3
"""Checks what the Markdown documents of the repository refer to. No network.

Usage: tools/check_links.py [ROOT]

Refused, one line each with file and line:
  - a link to a file that does not exist, or to a heading that its document
    does not have (anchors are GitHub's);
  - a path in code font, such as `common/net/frame.h`, that names nothing in
    the repository. `a/{b,c}.h` names two files, `a/*_test.cc` at least one.
Exit code: 0 when nothing is refused, else 1.
"""

import glob
import os
import re
import sys

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`]+)`")
# A file of the repository: a folder before the slash, a suffix, nothing odd.
PATH = re.compile(r"[\w.]+/[\w./{},*-]+\.(\w+|{\w+(,\w+)*})")
BRACES = re.compile(r"{([^{}]*)}")


def documents(root):
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith((".", "bazel-"))]
        for name in sorted(files):
            if name.endswith(".md"):
                yield os.path.join(folder, name)


def prose(path):
    """The numbered lines outside code blocks."""
    fenced = False
    with open(path, encoding="utf-8") as document:
        for number, line in enumerate(document, 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced:
                yield number, line.rstrip("\n")


def anchors(path):
    """The headings' anchors as GitHub makes them."""
    found = set()
    for _, line in prose(path):
        heading = re.match(r"#+ +(.*?) *#*$", line)
        if not heading:
            continue
        text = LINK.sub(lambda m: m.group(0)[1:m.group(0).index("]")],
                        heading.group(1))
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        anchor, repeats = slug, 0
        while anchor in found:
            repeats += 1
            anchor = "%s-%d" % (slug, repeats)
        found.add(anchor)
    return found


def link_fault(document, target):
    """Why `target` cannot be followed from `document`, or nothing."""
    if re.match(r"[a-z]+:", target):
        return None  # another site's
    path, _, anchor = target.partition("#")
    file = os.path.join(os.path.dirname(document), path) if path else document
    if not os.path.exists(file):
        return "there is no %s" % path
    if anchor and file.endswith(".md") and anchor not in anchors(file):
        return "%s has no heading #%s" % (path or "this document", anchor)
    return None


def expand(path):
    """a/{b,c}.h -> a/b.h, a/c.h."""
    braces = BRACES.search(path)
    if not braces:
        return [path]
    return [name for choice in braces.group(1).split(",")
            for name in expand(path[:braces.start()] + choice + path[braces.end():])]


def check(root):
    """What is refused, and how many references were looked at."""
    folders = {f for f in os.listdir(root) if os.path.isdir(os.path.join(root, f))}
    refused, seen = [], 0
    for document in documents(root):
        for number, line in prose(document):
            where = "%s:%d" % (os.path.relpath(document, root), number)
            for target in LINK.findall(CODE.sub("", line)):
                seen += 1
                fault = link_fault(document, target)
                if fault:
                    refused.append("%s: %s: %s" % (where, target, fault))
            for code in CODE.findall(line):
                if not PATH.fullmatch(code) or code.split("/")[0] not in folders:
                    continue
                seen += 1
                for path in expand(code):
                    if not glob.glob(os.path.join(root, path)):
                        refused.append("%s: there is no %s" % (where, path))
    return refused, seen


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    refused, seen = check(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(here))
    for line in refused:
        print(line)
    if not refused:
        print("%d links and paths lead somewhere" % seen)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())

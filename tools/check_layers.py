#!/usr/bin/env python3
"""Holds every #include against the build files and the floors of the house.

Usage: tools/check_layers.py [--list] [ROOT]

Refused, one line each with file and line:
  - an include of a header that no target has, or whose target the including
    target does not list in its deps: Bazel, which runs without a sandbox here, would not notice;
  - an include of a header whose target is not visible from there: the floors
    are the package_groups of the BUILD file at the root;
  - a target in deps none of whose headers is included;
  - folders that include each other, directly or through others;
  - a folder other than client/ that includes both topologies, ps/ and ring/.
--list prints which folder includes which, from the top floor down.
Exit code: 0 when nothing is refused, else 1.
"""

import collections
import os
import re
import sys

Target = collections.namedtuple("Target", "label files deps visibility")
PUBLIC = "//visibility:public"


class Build:
    """The targets and package_groups of all BUILD files below `root`."""

    def __init__(self, root):
        self.targets = []
        self.groups = {}  # label -> (packages, included groups)
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders
                          if not f.startswith((".", "bazel-")) and f != "third_party"]
            if "BUILD" in files:
                package = os.path.relpath(folder, root)
                with open(os.path.join(folder, "BUILD")) as build:
                    self._read("" if package == "." else package, build.read())

    def _read(self, package, text):
        """A BUILD file is Python with Bazel's functions."""

        def label(name):
            if name.startswith("@"):
                return name
            if name.startswith(":"):
                return "//" + package + name
            return name if ":" in name else name + ":" + os.path.basename(name)

        def add(name, files, deps=(), visibility=None):
            self.targets.append(
                Target("//%s:%s" % (package, name),
                       [os.path.join(package, f) for f in files],
                       {label(d) for d in deps},
                       [label(v) for v in visibility or ()]))

        def rule(name="", srcs=(), hdrs=(), deps=(), visibility=None, **_):
            files = [f for f in list(srcs) + list(hdrs) if not f.startswith(("//", ":"))]
            add(name, files, deps, visibility)

        def embed(name, visibility=None, **_):
            add(name, [name + ".h"], visibility=visibility)

        def cc_proto(name, src, visibility=None, **_):
            add(name, [src.replace(".proto", ".pb.h")], visibility=visibility)

        def cuda_library(name, src, hdrs, deps, visibility=None, **_):
            add(name, [src] + hdrs, deps, visibility)

        def fuzz_test(name, deps):
            add(name + "_fuzz", [name + "_fuzz.cc"], list(deps) + [":fuzz"])

        def alias(name, actual, visibility=None, **_):
            add(name, [], actual, visibility)

        def package_group(name, packages=(), includes=(), **_):
            self.groups[label(":" + name)] = (packages, [label(i) for i in includes])

        def nothing(*_, **__):
            return []

        names = {
            "cc_library": rule, "cc_binary": rule, "cc_test": rule, "embed": embed,
            "cc_proto": cc_proto, "cuda_library": cuda_library, "alias": alias,
            "fuzz_test": fuzz_test,
            "package_group": package_group,
            "select": lambda choices: list(choices.values()),
            "LIGHT_COPTS": [], "TEST_COPTS": [],
        }
        for name in ("all_fuzzers", "config_setting", "exports_files", "filegroup", "genrule",
                     "glob", "load", "package", "precompiled_header", "sh_test"):
            names[name] = nothing
        exec(compile(text, package + "/BUILD", "exec"), dict(names, __builtins__={}))

    def _in_group(self, package, group):
        packages, includes = self.groups[group]
        return any(in_package(package, p) for p in packages) or \
            any(self._in_group(package, i) for i in includes)

    def sees(self, package, target):
        """Whether a target of `package` may depend on `target`."""
        if package == package_of(target.label) or PUBLIC in target.visibility:
            return True
        for visibility in target.visibility:
            where, _, kind = visibility[2:].partition(":")
            if kind == "__subpackages__":
                seen = in_package(package, "//" + where + "/...")
            elif kind == "__pkg__":
                seen = package == where
            else:
                seen = self._in_group(package, visibility)
            if seen:
                return True
        return False


def package_of(label):
    return label[2:].partition(":")[0]


def in_package(package, pattern):
    """pattern: "//lab/study", or "//lab/..." for the folders below too."""
    pattern = pattern[2:]
    if not pattern.endswith("..."):
        return package == pattern
    return (package + "/").startswith(pattern[:-3])


def includes_of(path):
    if not re.search(r"\.(h|cc|cu)$", path) or not os.path.exists(path):
        return
    with open(path) as source:
        for number, line in enumerate(source, 1):
            match = re.match(r'#include "([^"]+)"', line)
            if match:
                yield number, match.group(1)


def check(root):
    """What is refused; and which folder includes which, tests left out."""
    build = Build(root)
    owners = collections.defaultdict(list)
    for target in build.targets:
        for path in target.files:
            owners[path].append(target)
    headers = {target.label: {f for f in target.files if f.endswith(".h")} for target in build.targets}
    headers = {label: files for label, files in headers.items() if files}
    refused, arrows = set(), collections.defaultdict(set)
    for target in build.targets:
        package = package_of(target.label)
        included = set()
        for path in target.files:
            for number, header in includes_of(os.path.join(root, path)):
                where = "%s:%d" % (path, number)
                included.add(header)
                if header not in owners:
                    if os.path.isdir(os.path.join(root, os.path.dirname(header) or "?")):
                        refused.add("%s includes %s, which no target has" % (where, header))
                    continue  # a library's
                labels = {o.label for o in owners[header]}
                if not labels & (target.deps | {target.label}):
                    refused.add("%s includes %s, but %s does not list %s in its deps" % (
                        where, header, target.label, " or ".join(sorted(labels))))
                if not any(build.sees(package, o) for o in owners[header]):
                    refused.add("%s: %s may not include %s: see the floors in BUILD" % (
                        where, package, header))
                folders = os.path.dirname(path), os.path.dirname(header)
                if folders[0] != folders[1] and not path.startswith("tests/"):
                    arrows[folders[0]].add(folders[1])
        for label in target.deps & set(headers) if target.files else ():
            if not headers[label] & included:
                refused.add("%s lists %s in its deps, and includes none of its headers" % (
                    target.label, label))
    return sorted(refused), arrows


def sort_floors(arrows):
    """The folders, each behind those that include it; and those in circles."""
    above = collections.Counter(f for others in arrows.values() for f in others)
    folders = set(arrows) | set(above)
    free = sorted(f for f in folders if not above[f])
    order = []
    while free:
        order.append(free.pop(0))
        for folder in sorted(arrows.get(order[-1], ())):
            above[folder] -= 1
            if not above[folder]:
                free.append(folder)
    return order, sorted(folders - set(order))


def both_topologies(arrows):
    """Folders at the top that include both, as client/ alone may."""
    topologies = collections.defaultdict(set)
    for folder, others in arrows.items():
        tops = {other.partition("/")[0] for other in others}
        topologies[folder.partition("/")[0]] |= tops & {"ps", "ring"}
    return sorted(top for top, both in topologies.items()
                  if len(both) == 2 and top != "client")


def main():
    args = [a for a in sys.argv[1:] if a != "--list"]
    here = os.path.dirname(os.path.abspath(__file__))
    refused, arrows = check(args[0] if args else os.path.dirname(here))
    order, circle = sort_floors(arrows)
    if circle:
        refused.append("these folders include each other, directly or through others: " +
                       ", ".join(circle))
    refused += [top + "/ includes both ps/ and ring/: only client/ may"
                for top in both_topologies(arrows)]
    if "--list" in sys.argv:
        for folder in order:
            print("%s -> %s" % (folder, " ".join(sorted(arrows[folder])) or "nothing"))
    for line in refused:
        print(line)
    if not refused:
        print("no include runs up: %d folders, %d arrows" % (
            len(order), sum(len(a) for a in arrows.values())))
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Prints docs/flags.md: every command's --help, as Markdown.

Usage: tools/make_flag_reference.py [PSRING] > docs/flags.md

PSRING: the built program; default: bazel-bin/cli/psring in the repository.
"""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COLUMN = 30  # where CLI11 begins a flag's meaning, or does so a line below
HEAD = """\
# Flags

Made from the programs' `--help` by `tools/make_flag_reference.py`: edit the
help texts, not this page. `tools/check.sh` holds the two together.

In the repository, type `./psring` for `psring`. Flags of `psring worker` also
follow `--` of `psring launch` and `psring compare`.
"""


def run(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    except OSError as error:
        sys.exit("cannot run %s: %s; ./psring build builds it" % (command[0], error.strerror))
    if done.returncode != 0:
        sys.exit("%s ended with %d: %s" % (" ".join(command), done.returncode, done.stderr))
    return done.stdout


def commands_in(usage):
    """The commands that psring --help lists: the program's and the wrapper's."""
    program, _, wrapper = usage.partition("In the repository, ")
    listed = re.compile(r"^  ([a-z][a-z-]*)  +\S", re.M)
    return listed.findall(program), listed.findall(wrapper)


class Flag:
    """One entry of CLI11's help."""

    def __init__(self, entry, meaning):
        entry, _, excludes = entry.strip().partition(" Excludes: ")
        required = entry.endswith(" REQUIRED")
        entry = re.sub(r"( \.\.\.)?( REQUIRED)?$", "", entry)
        name, _, value = entry.partition(" ")
        value, _, default = value.partition("=")
        # --page{127.0.0.1:0} HOST:PORT: without a value the flag means the one in braces.
        name, implied = re.sub(r"{.*}$", "", name), name.endswith("}")
        if implied:
            value += ", or no value"
        self.names = " ".join(code(n) for n in name.split(","))
        self.values = values_of(value)
        self.default = "required" if required else code(default)
        if excludes:
            meaning += ". Not with %s" % " or ".join(code(e) for e in excludes.split())
        self.meaning = meaning.replace("|", "\\|").replace("<", "&lt;")

    def row(self):
        return "| %s | %s | %s | %s |" % (self.names, self.values, self.default,
                                          self.meaning)


def code(text):
    return "`%s`" % text if text else ""


def values_of(text):
    """TEXT:{ps,ring}, INT:INT in [1 - 64] or TEXT as people read them."""
    choice = re.search(r"{(.*)}", text)
    if choice:
        return ", ".join(code(c) for c in choice.group(1).split(","))
    bounds = re.search(r"^(\w+):.* in \[(\S+) - (\S+)\]$", text)
    if bounds:
        low, high = bounds.groups()[1:]
        return "%s or more" % low if float(high) >= 1e9 else "%s to %s" % (low, high)
    return {"INT": "integer", "UINT": "integer", "FLOAT": "number", "TEXT": "text"}.get(
        text, text)


def sections_of(lines):
    """(title, [[entry, meaning]]) of each "Title:"; last (None, [line]): the rest."""
    title, entries, prose = None, [], []
    for line in lines + [""]:
        heading = re.fullmatch(r"([A-Z]\w*):", line)
        if heading and not line.startswith("Example"):
            title = heading.group(1)
        elif title and line.startswith(" " * COLUMN):
            entries[-1] = ["".join(entries[-1]), line.strip()]
        elif title and line.startswith("  "):
            entries.append([line[:COLUMN], line[COLUMN:]])
        elif title and not line:
            if entries:
                yield title, entries
                title, entries = None, []
        else:
            prose.append(line)
    yield None, prose


def block(text):
    return "```\n%s\n```" % text.strip("\n")


def table(title, flags):
    title = {"Positionals": "arguments"}.get(title, title)
    head = "| %s | values | default | meaning |\n|---|---|---|---|" % title.lower()
    return "\n".join([head] + [flag.row() for flag in flags])


def command_page(program, words):
    """The Markdown paragraphs of one command, its subcommands last."""
    lines = run(program, *words, "--help").splitlines()
    usage = next(i for i, line in enumerate(lines) if line.startswith("Usage: "))
    page = ["%s psring %s" % ("#" * (len(words) + 1), " ".join(words)),
            " ".join(lines[:usage]), block(lines[usage][len("Usage: "):])]
    subcommands = []
    for title, entries in sections_of(lines[usage + 1:]):
        if title == "Subcommands":
            subcommands = [entry.strip() for entry, _ in entries]
        elif title:
            page.append(table(title, [Flag(*entry) for entry in entries]))
        elif any(entries):
            page.append(block("\n".join(entries)))
    for subcommand in subcommands:
        page += command_page(program, words + [subcommand])
    return page


def main():
    program = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(
        ROOT, "bazel-bin/cli/psring")
    usage = run(program, "--help")
    built, wrapped = commands_in(usage)
    page = [HEAD.strip(), block(usage)]
    for command in built:
        page += command_page(program, [command])
    for command in wrapped:
        page += ["## psring " + command,
                 block(run(os.path.join(ROOT, "psring"), command, "--help"))]
    print("\n\n".join(page))


if __name__ == "__main__":
    main()

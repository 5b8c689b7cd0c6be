#!/usr/bin/env python3
"""Packs the Python package and the programs that were built into a wheel.

Usage: tools/make_wheel.py BAZEL-BIN FOLDER

Writes FOLDER/psring-VERSION-py3-none-linux_ARCH.whl, for any Python 3.9 or
newer of this machine's kind; `auditwheel repair` then brings the libraries that
it needs. The same files give the same bytes.
"""
import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.path.join(ROOT, "python", "psring")
# What Bazel built, and where it goes in the package.
BUILT = {"python/capi/libpsring.so": "psring/lib/libpsring.so",
         "cli/psring": "psring/bin/cli/psring",
         "ps/ps": "psring/bin/ps/ps"}

METADATA = """Metadata-Version: 2.1
Name: psring
Version: {version}
Summary: Distributed training over a parameter server or a ring, by one import
License: Apache-2.0
Requires-Python: >=3.9
Provides-Extra: torch
Requires-Dist: torch>=1.13; extra == "torch"
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """Wheel-Version: 1.0
Generator: psring
Root-Is-Purelib: false
Tag: {tag}
"""

ENTRY_POINTS = """[console_scripts]
psring = psring._programs:main
"""


def read(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as file:
        return file.read()


def version():
    header = read("python", "capi", "psring.h")
    return re.search(r'#define PSRING_VERSION "(.*)"', header).group(1)


def stripped(path):
    """The program at `path` without its symbols, as bytes."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "program")
        subprocess.run(["strip", "-o", copy, path], check=True)
        with open(copy, "rb") as file:
            return file.read()


def python_files():
    for folder, folders, names in os.walk(PACKAGE):
        folders[:] = sorted(d for d in folders if d not in ("__pycache__", "lib", "bin"))
        for name in sorted(names):
            if name.endswith((".py", ".pyi", ".typed")):
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    yield os.path.join("psring", os.path.relpath(path, PACKAGE)), file.read()


class Wheel:
    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.records = []

    def add(self, name, data, mode=0o644):
        if isinstance(data, str):
            data = data.encode()
        info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
        self.records.append(f"{name},sha256={digest.decode()},{len(data)}")

    def close(self, record):
        self.records.append(f"{record},,")
        self.add(record, "\n".join(self.records) + "\n")
        self.zip.close()


def main(bazel_bin, folder):
    number = version()
    tag = f"py3-none-linux_{platform.machine()}"
    info = f"psring-{number}.dist-info"
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"psring-{number}-{tag}.whl")
    wheel = Wheel(path)
    for name, data in python_files():
        wheel.add(name, data)
    for source, name in BUILT.items():
        wheel.add(name, stripped(os.path.join(bazel_bin, source)), 0o755)
    wheel.add(f"{info}/METADATA", METADATA.format(
        version=number, readme=read("README.md")))
    wheel.add(f"{info}/WHEEL", WHEEL.format(tag=tag))
    wheel.add(f"{info}/entry_points.txt", ENTRY_POINTS)
    wheel.add(f"{info}/LICENSE", read("LICENSE"))
    wheel.close(f"{info}/RECORD")
    print(path)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

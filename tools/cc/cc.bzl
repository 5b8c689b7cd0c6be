"""cc_library, cc_binary and cc_test, as Bazel's, compiled in less time.

Every BUILD file loads them from here.
  - Files begin with precompiled headers. They still include all that they use:
    with --define=precompiled=no nothing is included for them.
  - Tests, the laboratory, the commands and the mains are compiled with -O1: what is
    worth more time is what trains.
  - GCC collects no garbage below 512 MiB, which is a tenth of its time.
  - The sanitizers' builds take clang, where there is one (.bazelrc).
  - Under the undefined-behaviour sanitizer, tests leave out the checks of each
    access to memory, half of the time that it adds: what is tested has them. With
    it, and the address sanitizer, they are compiled with -O0: a third less.
"""

LIGHT_COPTS = ["-O1"]
TEST_COPTS = ["-fno-sanitize=alignment,null,object-size,vptr"] + select({
    "//tools/cc:address_sanitizer": ["-O0"],
    "//conditions:default": LIGHT_COPTS,
})
_GCC_COPTS = select({
    "//tools/cc:clang": [],
    "//conditions:default": ["--param=ggc-min-heapsize=524288"],
})

# The precompiled headers of a package's files, and their flags.
def _kind(is_main):
    package = native.package_name()
    top = package.split("/")[0]
    if top == "tests":
        return "test_headers", TEST_COPTS
    if is_main or top in ["cli", "lab"] or package == "common/process":
        return "light_headers", LIGHT_COPTS
    return "headers", []

def _faster(deps, copts, is_main = False):
    header, kind_copts = _kind(is_main)

    # Flags of its own, as loops over floats have: the header would not suit.
    if copts:
        return deps, copts
    return select({
        "//tools/cc:not_precompiled": deps,
        "//conditions:default": deps + ["//tools/cc:" + header],
    }), kind_copts + _GCC_COPTS + select({
        "//tools/cc:not_precompiled": [],
        # The path, as clang looks for what is precompiled at no other.
        "//conditions:default": ["-include", "$(BINDIR)/tools/cc/%s.h" % header],
    })

def cc_library(name, deps = [], copts = [], **kwargs):
    if kwargs.get("srcs"):
        deps, copts = _faster(deps, copts)
    native.cc_library(name = name, deps = deps, copts = copts, **kwargs)

def cc_binary(name, deps = [], copts = [], **kwargs):
    deps, copts = _faster(deps, copts, is_main = True)
    native.cc_binary(name = name, deps = deps, copts = copts, **kwargs)

def cc_test(name, deps = [], copts = [], **kwargs):
    deps, copts = _faster(deps, copts)
    native.cc_test(name = name, deps = deps, copts = copts, **kwargs)

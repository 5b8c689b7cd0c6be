"""fuzz_test(name, deps): a fuzz target, as a test and as a libFuzzer program.

NAME_fuzz.cc is the target (fuzz.h). Made of it are
  - NAME_test: runs it on its seeds and on the files of corpus/NAME, with every
    compiler and under the sanitizers;
  - NAME_fuzzer: searches for inputs that break it. Only --config=fuzz links it;
    ./psring test --fuzz does that.
"""

load("//tools/cc:cc.bzl", "cc_binary", "cc_library", "cc_test")

def fuzz_test(name, deps):
    cc_library(
        name = name + "_fuzz",
        testonly = True,
        srcs = [name + "_fuzz.cc"],
        deps = deps + [":fuzz"],
        alwayslink = True,
    )
    cc_test(
        name = name + "_test",
        size = "small",
        args = ["tests/fuzz/corpus/" + name],
        data = native.glob(["corpus/" + name + "/*"], allow_empty = True),
        # One thread has no races to find.
        tags = ["one-thread"],
        deps = [
            ":" + name + "_fuzz",
            ":replay_main",
        ],
    )
    cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [":" + name + "_fuzz"],
    )

def all_fuzzers(name):
    """Every NAME_fuzzer that stands before it in the BUILD file."""
    native.filegroup(
        name = name,
        testonly = True,
        srcs = [
            ":" + rule
            for rule in sorted(native.existing_rules().keys())
            if rule.endswith("_fuzzer")
        ],
        tags = ["manual"],
    )

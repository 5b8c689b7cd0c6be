"""A cc_library of CUDA kernels."""

load("@cuda//:found.bzl", "ARCHITECTURES", "NVCC")

def cuda_library(name, src, hdrs, deps, headers):
    """`headers`: of psring's own that `src` includes, as labels of files.

    Without fused multiply-adds, as all sums and optimizers of psring.
    """
    native.genrule(
        name = name + "_object",
        srcs = [src] + hdrs + headers,
        outs = [name + ".o"],
        cmd = " ".join(
            [NVCC or "false", "-c $(location %s) -o $@" % src] +
            ["-I. -std=c++17 -O2 --fmad=false --extended-lambda --expt-relaxed-constexpr"] +
            ["-Xcompiler=-fPIC,-Wall"] +
            ["-gencode=" + architecture for architecture in ARCHITECTURES],
        ),
        tags = ["manual"],
    )
    native.cc_library(
        name = name,
        srcs = [name + ".o"],
        hdrs = hdrs,
        linkstatic = True,  # as CUDA's runtime is
        tags = ["manual"],
        deps = deps + ["@cuda//:runtime"],
    )

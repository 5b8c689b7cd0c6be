"""Finds CUDA and NCCL: nvcc, the runtime's headers and static library, nccl.h.

Looks in $CUDA_HOME (else /usr/local/cuda) and in the nvidia-* wheels of the
active python3 and of the repository's .venv; each part wherever it is found
first.
Where one is missing, nothing here can be built.
"""

_ASK_PYTHON = """
import importlib.util
spec = importlib.util.find_spec("nvidia")
print("\\n".join(spec.submodule_search_locations if spec else []))
"""

def _wheels_of(ctx, python):
    result = ctx.execute([python, "-c", _ASK_PYTHON], quiet = True)
    roots = []
    for nvidia in result.stdout.split("\n"):
        path = nvidia and ctx.path(nvidia)
        if path and path.exists:
            roots += [str(part) for part in path.readdir()]
    return roots

def _roots(ctx):
    roots = [ctx.os.environ.get("CUDA_HOME", "") or "/usr/local/cuda"]
    venv = ctx.path(Label("//:WORKSPACE")).dirname.get_child(".venv").get_child("bin").get_child("python3")
    for python in [ctx.which("python3"), venv if venv.exists else None]:
        if python:
            roots += _wheels_of(ctx, python)
    return roots

def _find(ctx, roots, places):
    for root in roots:
        for place in places:
            path = ctx.path(root + "/" + place)
            if path.exists:
                return path
    return None

# Those of NVIDIA's GPUs since Turing. Machine code for one runs on all of its
# generation that came later: 8.0 on 8.6 and 8.9, 10.0 on 10.3.
_MACHINE_CODE = ["75", "80", "90", "100", "120"]

# For the driver to compile from, on what is newer and not among those.
_PTX = "90"

# What this nvcc can make of them, as its -gencode wants it.
def _architectures(ctx, nvcc):
    result = ctx.execute([nvcc, "--list-gpu-arch"])
    known = result.stdout.split("\n")
    codes = ["arch=compute_%s,code=sm_%s" % (a, a) for a in _MACHINE_CODE if "compute_" + a in known]
    return codes + ["arch=compute_%s,code=compute_%s" % (_PTX, _PTX)]

def _cuda_repository_impl(ctx):
    roots = _roots(ctx)
    roots = [root for root in roots if root.startswith("/")]
    nvcc = _find(ctx, roots, ["bin/nvcc"])
    runtime = _find(ctx, roots, ["include/cuda_runtime_api.h"])
    library = _find(ctx, roots, ["lib64/libcudart_static.a", "lib/libcudart_static.a"])
    nccl = _find(ctx, roots, ["include/nccl.h"])
    available = bool(nvcc and runtime and library and nccl)
    ctx.file("found.bzl", "NVCC = %r\nARCHITECTURES = %r\n" % (
        str(nvcc) if available else "",
        _architectures(ctx, nvcc) if available else [],
    ))
    if not available:
        ctx.file("BUILD", "")
        return
    ctx.symlink(runtime.dirname, "include")
    ctx.symlink(nccl, "nccl/nccl.h")
    ctx.symlink(library, "libcudart_static.a")
    ctx.file("BUILD", """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "runtime",
    srcs = ["libcudart_static.a"],
    hdrs = glob(["include/**"]),
    includes = ["include"],
    linkstatic = True,
    linkopts = ["-ldl", "-lrt", "-lpthread"],
)

# Its headers alone: the library is looked for while running.
cc_library(
    name = "nccl",
    hdrs = ["nccl/nccl.h"],
    includes = ["nccl"],
    linkopts = ["-Wl,-rpath,%s"],
    deps = [":runtime"],
)
""" % nccl.dirname.dirname.get_child("lib"))

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    environ = ["CUDA_HOME", "PATH"],
    local = True,
)

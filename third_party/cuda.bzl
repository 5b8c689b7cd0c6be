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

def _cuda_repository_impl(ctx):
    roots = _roots(ctx)
    roots = [root for root in roots if root.startswith("/")]
    nvcc = _find(ctx, roots, ["bin/nvcc"])
    runtime = _find(ctx, roots, ["include/cuda_runtime_api.h"])
    library = _find(ctx, roots, ["lib64/libcudart_static.a", "lib/libcudart_static.a"])
    nccl = _find(ctx, roots, ["include/nccl.h"])
    available = bool(nvcc and runtime and library and nccl)
    ctx.file("found.bzl", "NVCC = %r\n" % (str(nvcc) if available else ""))
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

"""cc_proto(name, srcs, deps): C++ from .proto files by the system's protoc."""

def cc_proto(name, src, visibility = None):
    """A library of one .proto file, included by its path in the repository."""
    stem = src[:-len(".proto")]
    outs = [stem + ".pb.h", stem + ".pb.cc"]
    native.genrule(
        name = name + "_protoc",
        srcs = [src],
        outs = outs,
        cmd = "protoc --proto_path=. --cpp_out=$(GENDIR) $(SRCS)",
        message = "Running protoc",
    )
    native.cc_library(
        name = name,
        srcs = [outs[1]],
        hdrs = [outs[0]],
        visibility = visibility,
        deps = ["//third_party:protobuf"],
    )

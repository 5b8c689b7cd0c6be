import os
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")]

# On a GPU, JAX would take most of its memory in each of a test's processes, and compute in TF32.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")
# JAX tries algorithms on a GPU and takes the fastest, so each process would have other bits.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")

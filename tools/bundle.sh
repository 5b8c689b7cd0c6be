# Sourced by ./psring: packs the programs for hosts that cannot build them.

# Comes from the host: libtorch and CUDA, which are large and the host's choice,
# and the C library, which cannot be brought along.
LEFT_OUT='^lib(torch|c10|caffe2|shm|gomp|mkl|cud|cufile|cupti|cublas|cusparse|cusolver|cufft|curand|nccl|nv|c\.|m\.|dl\.|rt\.|pthread\.|resolv\.|util\.|anl\.)|^ld-linux'

bundle_usage() {
  cat << END
Usage: ./psring bundle [--torch=DIR|VERSION] [FILE]

Builds, and packs the programs with the libraries that they need (not libtorch's,
not CUDA's) into FILE (psring-bundle.tar.gz), for any x86-64 Linux with glibc
2.36 or newer, which then needs neither Bazel nor root:

  tar xf psring-bundle.tar.gz && psring-bundle/psring doctor

There libtorch is that of \$PSRING_TORCH (a directory with lib/) or of the active
python3's torch: of the version that the programs were built with. --torch says
which that is: the libtorch in DIR, or a VERSION such as 2.11.0, which pip installs
beside others; without it, the one of ./psring build.
END
}

# The libraries that the program at $1 is linked to: name and file, one a line.
libraries_of() {
  ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' |
    grep -vE "$LEFT_OUT"
}

# pack BIN FILE: BIN holds cli/psring, ps/ps, ... In a shell of its own, which
# leaves nothing behind where it fails, as on a full disk.
pack() (
  bin=$1 file=$2
  work=$(mktemp -d)
  trap 'rm -rf "$work" "$file.part"' EXIT
  to=$work/psring-bundle
  mkdir -p "$to/lib"
  for program in cli/psring ps/ps worker/worker lab/bench/rank; do
    install -D -m 755 "$bin/$program" "$to/bin/$program"
    strip "$to/bin/$program"
    libraries_of "$bin/$program" | while read -r name library; do
      install -m 644 "$library" "$to/lib/$name"
    done
  done
  "$bin/worker/worker" --version | sed -n 's/^libtorch \([0-9.]*\).*/\1/p' > "$to/libtorch-version"
  install -m 644 "$root/LICENSE" "$to/"
  install -m 755 "$root/tools/bundled_psring.sh" "$to/psring"
  tar -C "$work" -czf "$file.part" --force-local psring-bundle || die "cannot write $file; see above"
  mv "$file.part" "$file"
)

bundle_command() {
  local wish=
  case "${1:-}" in
    -h | --help) bundle_usage; return ;;
    --torch=?*) wish=${1#--torch=}; shift ;;
    -*) say "unknown flag $1; see ./psring bundle --help"; exit 2 ;;
  esac
  local file=${1:-psring-bundle.tar.gz}
  # Before the build, which takes minutes.
  mkdir -p "$(dirname "$file")" && [ -w "$(dirname "$file")" ] && [ ! -d "$file" ] ||
    die "cannot write $file: name a file in a folder that you may write to"
  if [ -n "$wish" ]; then choose_other_torch "$wish"; else choose_torch; fi
  build_if_stale
  pack "$root/bazel-bin" "$file"
  say "wrote $file ($(du -h "$file" | cut -f1))"
}

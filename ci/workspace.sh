# What every script here knows of the workspace: which crates are no_std, which backends are built, how a Debian package
# gets on the machine, and how libtest's figures are added up. Sourced, not run.
# shellcheck shell=bash disable=SC2034
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The crates that build without the standard library, lowest floor first.
NO_STD_CRATES=(
    trunnion-runtime-core
    trunnion-memory-pools
    trunnion-resource-tracker
    trunnion-kernel-wgsl
    trunnion-server-layers
    trunnion-backend-core
    trunnion-backend-host
)

# The workspaces inside this one, each with its own lock file. The last is heavy to build: ci/full.sh checks its code.
NESTED=(tests/fuzz tests/firmware benches/peers)

# The backends built so far, as TRUNNION_REQUIRE wants them: comma-separated. Vulkan's drivers are had from ci/drivers.sh; the
# double of CUDA's is built with the tests, and wants what ci/cuda-compilers.sh installs.
BACKENDS=host,vulkan:llvmpipe,vulkan:swiftshader,cuda:double

# What builds the workspace's tests with all of them.
ALL_BACKENDS=(--features 'trunnion/vulkan,trunnion/cuda,trunnion-conformance/vulkan,trunnion-conformance/cuda')

TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
HOST_TRIPLE=$(rustc -vV | sed -n 's/^host: //p')

# The version the workspace promises to build with, as in its Cargo.toml.
MSRV=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)

say() { printf '\n== %s\n' "$*"; }
die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# version_at_least HAVE WANT
version_at_least() { printf '%s\n%s\n' "$2" "$1" | sort --check=quiet --version-sort; }

# as_root COMMAND…
as_root() {
    if ((EUID == 0)); then
        "$@"
    else
        command -v sudo >/dev/null || die "only root can: $*"
        sudo "$@"
    fi
}

# apt_get ARGUMENT…: as root, and one at a time, since scripts that run side by side may each miss something.
apt_get() {
    as_root flock "${TMPDIR:-/tmp}/trunnion-apt.lock" \
        env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@"
}

# need WHAT PACKAGE…: installs the Debian packages where WHAT (a program, or a path with a slash in it) is missing, and
# says nothing where it is there.
need() {
    local what=$1
    shift
    if [[ $what == */* ]]; then [[ -e $what ]] && return; else command -v "$what" >/dev/null && return; fi
    command -v apt-get >/dev/null || die "$what is missing, and there is no apt-get to install it with (Debian: $*)"
    say "installing $* ($what is missing)"
    apt_get update -qq
    apt_get install -qq -y --no-install-recommends "$@" >/dev/null
    hash -r
}

# count_tests LOG: adds up every `test result:` line in the log into PASSED, FAILED and IGNORED.
count_tests() {
    read -r PASSED FAILED IGNORED < <(awk '
        /^test result:/ {
            for (i = 2; i <= NF; i++) {
                if ($i == "passed;") passed += $(i - 1)
                if ($i == "failed;") failed += $(i - 1)
                if ($i ~ /^ignored;/) ignored += $(i - 1)
            }
        }
        END { print passed + 0, failed + 0, ignored + 0 }' "$1")
}

# Nothing that has a build script or a derive macro builds without a linker for this machine.
need cc gcc libc6-dev

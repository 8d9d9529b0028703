#!/usr/bin/env bash
# Tries everything on a real NVIDIA GPU: what is assumed of its driver, the conformance suite, the workloads that are about hardware, and the
# example digits whole. Needs bash, the driver, NVRTC, and the programs that pack.sh puts beside it. Refuses the double of the driver. Each
# section is there as soon as it is done, in what is printed and in the file that is named last, and all of them take less than five minutes.
#
# `run.sh [--driver FILE] [--nvrtc FILE-OR-DIRECTORY] [--out FILE]`. One GPU is tried, the first one unless CUDA_VISIBLE_DEVICES names others:
# a process then needs no time for those beside it. Only what is assumed of two devices is asked of the second one too. The exit code is 0 when everything held, 1 when something did not, 2 for bad arguments,
# 3 where there is no GPU to try it on.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Seconds for everything, and for each part.
ALL=300 ASSUMPTIONS=100 SUITE=150 WORKLOADS=60 DIGITS=40
NO_GPU=3
# The share of the test digits that the example promises to read right.
PROMISED=0.95

driver='' nvrtc=${TRUNNION_CUDA_COMPILERS:-} out=trunnion-gpu.log
usage() {
    printf 'run.sh: %s\nusage: run.sh [--driver FILE] [--nvrtc FILE-OR-DIRECTORY] [--out FILE]\n' "$1" >&2
    exit 2
}
while (($#)); do
    case $1 in
    --driver | --nvrtc | --out) (($# > 1)) || usage "$1 needs a value" ;;
    *) usage "there is no argument $1" ;;
    esac
    case $1 in
    --driver) driver=$2 ;;
    --nvrtc) nvrtc=$2 ;;
    --out) out=$2 ;;
    esac
    shift 2
done
: >"$out" || usage "$out cannot be written"

note() { printf '%s\n' "$*" | tee -a "$out"; }
refuse() {
    note "gpu: NOT RUN: $*"
    exit "$NO_GPU"
}

# library NAME DIRECTORY…: where the dynamic loader finds it, else where it lies below the directories.
library() {
    local name=$1 found
    shift
    found=$({ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | awk -v name="$name" '$1 == name { print $NF; exit }')
    [[ -n $found ]] || found=$(find "$@" -name "$name" 2>/dev/null | head -n 1)
    printf '%s' "$found"
}

# ---- which driver, which compiler

[[ -n $driver ]] || driver=$(library libcuda.so.1 /usr/lib /usr/lib64 /usr/local)
[[ -n $driver ]] || refuse 'no CUDA driver (libcuda.so.1) is installed'
[[ -e $driver ]] || refuse "$driver: there is no such driver"
driver=$(realpath "$driver")
# By its name, and by a function that no real driver has.
if [[ $driver == *trunnion_cuda_double* ]] || grep -q trunnion_double_claim_device "$driver"; then
    refuse "$driver is the double of the driver, which is no GPU"
fi
# A compiler newer than the driver may make what that refuses, so it comes last.
names=(libnvrtc.so.13 libnvrtc.so.12)
[[ $(nvidia-smi 2>/dev/null) != *'CUDA Version: 12.'* ]] || names=(libnvrtc.so.12 libnvrtc.so.13)
for name in "${names[@]}"; do
    [[ -n $nvrtc ]] || nvrtc=$(library "$name" /usr/local /opt)
done
[[ -n $nvrtc ]] || refuse 'no NVRTC (libnvrtc.so.13 or .12) is installed; --nvrtc says where it is'
[[ -e $nvrtc ]] || refuse "$nvrtc: there is no such compiler"

export TRUNNION_CUDA_DRIVER=$driver TRUNNION_CUDA_COMPILERS=$nvrtc TRUNNION_REQUIRE=cuda:gpu
# What one device is to another is asked of two, where there are.
two=${CUDA_VISIBLE_DEVICES-0,1}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-0}
note "driver:   $driver"
note "compiler: $nvrtc"
note "devices:  CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"
if command -v nvidia-smi >/dev/null; then
    note "device:   $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1 | head -n 1)"
fi

# ---- the sections, each with a limit of its own and within that of all

failed=()
# section NAME SECONDS COMMAND…
section() {
    local name=$1 limit=$2 status
    shift 2
    local left=$((ALL - SECONDS))
    ((left < limit)) && limit=$left
    note ''
    note "== $name"
    if ((limit <= 0)); then
        note "$name: NOT RUN: the $ALL s for everything are over"
        failed+=("$name")
        return
    fi
    local begin
    begin=$(wc -c <"$out")
    timeout --kill-after=5 "$limit" "$@" 2>&1 | tee -a "$out"
    status=${PIPESTATUS[0]}
    # A driver that is there and has no device has nothing that could be tried; only the first section says so.
    [[ $name != assumptions ]] || ((status != NO_GPU)) || refuse "$driver has no device"
    ((status != 124 && status != 137)) || note "$name: cut off after $limit s"
    # What says that it was not run has not held.
    if ((status == 0)) && tail --bytes "+$((begin + 1))" "$out" | grep 'NOT RUN' >/dev/null; then
        status='not all was run'
    fi
    [[ $status == 0 ]] || failed+=("$name")
    note "$name: $([[ $status == 0 ]] && printf ok || printf 'FAILED (%s)' "$status"), $SECONDS s so far"
}

section assumptions "$ASSUMPTIONS" env CUDA_VISIBLE_DEVICES="$two" "$here/trunnion-assumptions" "$driver"
section suite "$SUITE" "$here/trunnion-conformance" --backend cuda:gpu
section workloads "$WORKLOADS" "$here/benches" gpu-launch gpu-pool-hit gpu-pinned-upload
section digits "$DIGITS" "$here/digits" --backend cuda:0 --out "$out.digits"
if [[ " ${failed[*]} " != *' digits '* ]]; then
    share=$(sed -n 's/^test accuracy \([01]\.[0-9]*\)$/\1/p' "$out" | tail -n 1)
    awk -v share="${share:-0}" -v promised="$PROMISED" 'BEGIN { exit !(share >= promised) }' || {
        note "digits: FAILED: ${share:-none} of the test digits read right; $PROMISED is promised"
        failed+=(digits)
    }
fi

note ''
((${#failed[@]} == 0)) || { note "gpu: FAILED: ${failed[*]}, after $SECONDS s"; exit 1; }
note "gpu: everything held, after $SECONDS s"

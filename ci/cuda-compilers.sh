#!/usr/bin/env bash
# Installs the vendor's CUDA compilers, which need no GPU, into the target directory, where the tests look for them. Does
# nothing where they are there already.
source "$(dirname "$0")/workspace.sh"
need python3 python3-venv

# What the driver double is asked to execute: newer PTX is refused by a driver of this version.
packages=(
    nvidia-cuda-nvrtc==13.0.88
    nvidia-cuda-nvcc==13.0.88
    nvidia-cuda-crt==13.0.88
    nvidia-nvvm==13.0.88
    nvidia-cuda-runtime==13.0.96
    nvidia-cuda-cccl==13.0.85
)
where=${TRUNNION_CUDA_COMPILERS:-$TARGET_DIR/cuda-compilers}

if ! "$where/bin/python" -m pip freeze 2>/dev/null | sort | comm -13 - <(printf '%s\n' "${packages[@]}" | sort) | grep -q . &&
    [[ -x $where/bin/python ]]; then
    say "the CUDA compilers are in $where"
    exit
fi
say "installing the CUDA compilers into $where"
python3 -m venv "$where"
"$where/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}"

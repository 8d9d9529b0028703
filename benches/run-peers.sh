#!/usr/bin/env bash
# Our runtime beside CubeCL's, both sides in one interleaved run: run-peers.sh NAME… | --all [--quick]
#
# Builds the peers in release first, which takes minutes the first time. Prints machine, commit and command, then a JSON object a line and
# a case, and a table that says which targets are met. A missed target is a figure: the status is 0 when everything was measured.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/peers"

names=$(sed -n 's/^    ("\([a-z0-9-]*\)", .*::.*),$/\1/p' src/workloads/mod.rs)
[[ $names ]] || { echo 'run-peers.sh: found no workload in peers/src/workloads/mod.rs' >&2; exit 1; }

refuse() {
    printf 'run-peers.sh: %s\nusage: run-peers.sh NAME… | --all [--quick]\nworkloads: %s\n' "$1" "${names//$'\n'/, }" >&2
    exit 2
}

named=false
for argument in "$@"; do
    case $argument in
        --quick) ;;
        --all) named=true ;;
        *) grep -qxF -- "$argument" <<<"$names" || refuse "unknown argument \`$argument\`"; named=true ;;
    esac
done
$named || refuse 'give names of workloads, or --all'

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/../../target/peers}

commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
[[ -z $(git status --porcelain 2>/dev/null) ]] || commit+=', with changes'
machine=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
printf 'machine: %s, %s cores, %s\n' "${machine:-unknown}" "$(nproc)" "$(uname -srm)"
printf 'load:    %s\n' "$(cut -d ' ' -f 1-3 /proc/loadavg 2>/dev/null || echo unknown)"
printf 'rustc:   %s\n' "$(rustc --version)"
printf 'commit:  %s\n' "$commit"
printf 'command: benches/run-peers.sh %s\n\n' "$*"

cargo build --release --locked
exec "$CARGO_TARGET_DIR/release/benches-peers" "$@"

#!/bin/bash
# VNN-COMP, version v1: prepare_instance.sh v1 CATEGORY ONNX VNNLIB
# Ends what an earlier instance may have left behind and reads the files once, so that they are in memory; no analysis.
# Exit code 0: go on.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
expect_v1 "${1:-}"
if [ "$#" -ne 4 ]; then
    echo "prepare_instance.sh: expected v1 CATEGORY ONNX VNNLIB, got $# arguments" >&2
    exit 1
fi

# What verifolio started says so on its command line; the process id was written by run_instance.sh.
MARK=${TMPDIR:-/tmp}/verifolio-instance-$(id -u).pid
if [ -f "$MARK" ]; then
    OLD=$(cat "$MARK")
    if grep -qs verifolio "/proc/$OLD/cmdline"; then
        kill -KILL "$OLD"
    fi
    rm -f "$MARK"
fi

"$VENV/bin/python" -m verifolio.plugins.bench.instance prepare "$3" "$4"

#!/bin/bash
# VNN-COMP, version v1: run_instance.sh v1 CATEGORY ONNX VNNLIB RESULTS_FILE TIMEOUT
# The results file gets sat, unsat, timeout, unknown or error on its first line, and a counterexample after sat.
# Several networks (VNN-LIB 2.0) are one argument: [('f', 'a.onnx'), ('g', 'b.onnx')].
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
expect_v1 "${1:-}"
if [ "$#" -ne 6 ]; then
    echo "run_instance.sh: expected v1 CATEGORY ONNX VNNLIB RESULTS_FILE TIMEOUT, got $# arguments" >&2
    exit 1
fi

MARK=${TMPDIR:-/tmp}/verifolio-instance-$(id -u).pid
echo $$ > "$MARK"
exec "$VENV/bin/python" -m verifolio.plugins.bench.instance run "$3" "$4" "$5" "$6"

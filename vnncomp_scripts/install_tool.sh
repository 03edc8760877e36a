#!/bin/bash
# VNN-COMP, version v1: install_tool.sh v1
# Makes an environment beside these scripts and installs verifolio into it. VERIFOLIO_PYTHON names the Python to use
# (3.11 or later), VERIFOLIO_VENV where the environment goes; one that has verifolio already is left as it is.
set -euo pipefail

if [ "${1:-}" != "v1" ]; then
    echo "install_tool.sh: expected the version string v1, got '${1:-}'" >&2
    exit 1
fi

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(dirname "$HERE")
VENV=${VERIFOLIO_VENV:-$HERE/venv}
export PYTHONSAFEPATH=1

if [ -x "$VENV/bin/verifolio" ]; then
    echo "verifolio is installed in $VENV"
else
    PYTHON=${VERIFOLIO_PYTHON:-python3}
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: set VERIFOLIO_PYTHON")'
    "$PYTHON" -m venv "$VENV"
    "$VENV/bin/python" -m pip install --quiet --constraint "$ROOT/constraints.txt" "$ROOT"
fi
"$VENV/bin/verifolio" --version

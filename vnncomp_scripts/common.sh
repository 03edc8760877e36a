# Shared by prepare_instance.sh and run_instance.sh: the environment, and the arguments of one instance.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
VENV=${VERIFOLIO_VENV:-$HERE/venv}
VERIFOLIO=$VENV/bin/verifolio
export PYTHONSAFEPATH=1
unset OMP_NUM_THREADS

expect_v1() {
    if [ "$1" != "v1" ]; then
        echo "$(basename "$0"): expected the version string v1, got '$1'" >&2
        exit 1
    fi
    if [ ! -x "$VERIFOLIO" ]; then
        echo "$(basename "$0"): $VERIFOLIO is missing; run install_tool.sh v1, or set VERIFOLIO_VENV" >&2
        exit 1
    fi
}

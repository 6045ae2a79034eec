# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the scripts in this folder, which run in the top of the build tree.
#
#   run [OPTION]... [NAME=VALUE]... PROGRAM [ARGUMENT]...
#       Run tests/mpi/PROGRAM (or a path with a slash elsewhere) under mpirun and pass its TAP on.
#       -n RANKS     2
#       -t SECONDS   limit for this run; 60
#       -e PATTERN   Grail must print a warning or error that matches (extended regular expression)
#       -q           what Grail prints does not matter
#       Without -e and -q any warning or error of Grail's is a failure.
#   finish           print the plan
#
# For judging a run by hand: launch takes the same arguments, prints nothing, sets rc and leaves the
# output in $out and $err; verdict NAME CONDITION... prints "ok - NAME" if the command CONDITION
# succeeds, else "not ok" and the run's output; skip NAME REASON.
#
# Environment: GRAIL_TEST_DRIVER sim (default), real or none; GRAIL_TEST_SLOW a factor on limits.

# used by the scripts
# shellcheck disable=SC2034
top=$(dirname "$0")/../..
work=$(mktemp -d "${TMPDIR:-/tmp}/grail-mpi.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
out=$work/out err=$work/err
tests=0 failures=0
export TMPDIR=$work

driver=${GRAIL_TEST_DRIVER:-sim}
slow=${GRAIL_TEST_SLOW:-1}

parse() {
    ranks=2 limit=60 expect="" quiet=no settings="" label=""
    while [ $# -gt 0 ]; do
        case $1 in
        -n) ranks=$2; shift 2 ;;
        -t) limit=$2; shift 2 ;;
        -e) expect=$2; shift 2 ;;
        -q) quiet=yes; shift ;;
        [A-Za-z_]*=*) settings="$settings $1"; shift ;;
        *) break ;;
        esac
    done
    case $1 in
    */*) program=$1 ;;
    *) program=tests/mpi/$1 ;;
    esac
    shift
    label="$ranks ranks$(echo "$settings" | sed 's/CUDASIM_//g; s/GRAIL_//g; s/  */, /g')"
    arguments=$*
}

# No setting or argument of these tests holds white space: word splitting is meant.
launch() {
    parse "$@"
    flag=
    [ "$driver" = real ] && flag=--real
    GRAIL_TEST_CASE_LIMIT=$((limit * slow - 5)) \
        timeout -k 5 $((limit * slow)) tests/run-with-sim -n "$ranks" $flag $settings \
        ${wrapper:-} "$program" $arguments > "$out" 2> "$err" < /dev/null
    rc=$?
}

emit() { # ok or "not ok", name
    tests=$((tests + 1))
    [ "$1" = ok ] || failures=$((failures + 1))
    echo "$1 - $2"
}

# The harness looks for Grail's messages: those judged here are shown in another form.
show() {
    sed 's/\[grail/{grail/; s/^/# /' "$err" | head -n 60 >&2
}

messages() {
    grep -E '\[grail[^]]*\] (warning|warn|error):' "$err"
}

verdict() {
    name=$1
    shift
    if "$@"; then
        emit ok "$name"
    else
        emit "not ok" "$name"
        sed 's/^/# /' "$out" | head -n 40 >&2
        show
    fi
}

skip() {
    emit ok "$1 # SKIP $2"
}

run() {
    launch "$@"
    name="$(basename "$program")${arguments:+ $arguments} ($label)"
    # the label goes behind each name, in front of a skip's reason
    sed -nE "s/^((not )?ok - [^#]*[^# ])( #.*)?\$/\\1 ($label)\\3/p" "$out" > "$work/tap"
    cat "$work/tap"
    tests=$((tests + $(grep -c . "$work/tap")))
    failures=$((failures + $(grep -c '^not ok' "$work/tap")))
    if [ $rc -eq 124 ] || [ $rc -eq 137 ]; then
        emit "not ok" "$name: ended within $((limit * slow)) s"
    elif ! grep -qE '^1\.\.[0-9]+' "$out"; then
        emit "not ok" "$name: came to its end (status $rc)"
    elif [ $rc -ne 0 ] && ! grep -q '^not ok' "$work/tap"; then
        emit "not ok" "$name: ended well (status $rc)"
    fi
    if [ -n "$expect" ]; then
        if messages | grep -qE "$expect"; then
            emit ok "$name: says $expect"
        elif grep -q '^ok [^#]*$' "$work/tap" || grep -q '^not ok' "$work/tap"; then
            emit "not ok" "$name: says $expect"
        fi
    elif [ $quiet = no ] && messages > /dev/null; then
        emit "not ok" "$name: logs no warning and no error"
    fi
    show
}

finish() {
    echo "1..$tests"
    [ $failures -eq 0 ] || exit 1
    exit 0
}

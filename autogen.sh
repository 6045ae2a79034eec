#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Makes ./configure from the sources. Needed after a clone; a release tarball has it already.
set -eu
cd "$(dirname "$0")"

missing=
for need in autoconf:autoconf automake:automake libtoolize:libtool pkg-config:pkg-config; do
    command -v "${need%%:*}" > /dev/null 2>&1 || missing="$missing ${need##*:}"
done
if [ -n "$missing" ]; then
    echo "autogen.sh: missing tools; install them with: apt-get install$missing" >&2
    exit 1
fi

mkdir -p build-aux
exec autoreconf --install --force "$@"

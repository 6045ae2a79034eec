# SPDX-License-Identifier: BSD-3-Clause
# Example programs: built with `make check`, installed as sources (examples_DATA).

EXTRA_DIST +=

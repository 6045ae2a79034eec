# SPDX-License-Identifier: BSD-3-Clause
# Tests of configure and of the installed tree.

build_tests = tests/build/harness.test tests/build/refusals.test tests/build/install.test

if !GRAIL_SANITIZERS
TESTS += $(build_tests)
endif
EXTRA_DIST += $(build_tests)

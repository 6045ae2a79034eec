dnl SPDX-License-Identifier: BSD-3-Clause
AC_DEFUN([GRAIL_SUMMARY], [
    AS_IF([test "x$GRAIL_CUDA_KERNELS" = xyes],
        [grail_kernels="$NVCC for$GRAIL_CUDA_ARCHS"],
        [grail_kernels="none (no nvcc): non-contiguous device data is packed by way of the host"])
    AS_IF([test "x$grail_have_cmocka" = xno],
        [grail_tests="MPI programs only: unit tests need libcmocka-dev"], [grail_tests="unit and MPI"])
    AS_IF([test "x$GRAIL_SANITIZE" = x], [grail_san=no], [grail_san=yes])
    AS_ECHO(["
Grail $PACKAGE_VERSION
  Open MPI        $GRAIL_OMPI_VERSION ($MPICC)
  components      $componentdir
  device kernels  $grail_kernels
  tests           $grail_tests
  sanitizers      $grail_san
"])
])

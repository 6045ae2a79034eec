dnl SPDX-License-Identifier: BSD-3-Clause
dnl nvcc and the architectures of the device kernels. The library itself needs no CUDA toolkit.

AC_DEFUN([GRAIL_CHECK_CUDA], [
    AC_ARG_VAR([NVCC], [NVIDIA's compiler for the device kernels])
    AC_ARG_VAR([NVCCFLAGS], [more flags for NVCC])
    AC_ARG_WITH([cuda],
        [AS_HELP_STRING([--with-cuda=DIR|no],
            [CUDA toolkit whose nvcc builds the device kernels (default: NVCC, PATH, /usr/local/cuda, Python wheels)])],
        [], [with_cuda=auto])
    AC_ARG_WITH([cuda-arch],
        [AS_HELP_STRING([--with-cuda-arch=LIST],
            [comma-separated architectures, for example 80,90 (default: the data-centre chips that nvcc knows)])],
        [], [with_cuda_arch=default])

    GRAIL_FIND_NVCC
    GRAIL_CUDA_KERNELS=no
    GRAIL_NVCC_GENCODE=
    AS_IF([test -n "$NVCC"], [GRAIL_CUDA_ARCHITECTURES])
    AS_IF([test "x$GRAIL_CUDA_KERNELS" = xno && test "x$with_cuda" != xauto && test "x$with_cuda" != xno],
        [GRAIL_REFUSE([no working nvcc under --with-cuda=$with_cuda (config.log has its output)],
            [install NVIDIA's cuda-nvcc and cuda-cudart-dev, or the wheels nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime],
            [--with-cuda=no])])
    AM_CONDITIONAL([GRAIL_CUDA_KERNELS], [test "x$GRAIL_CUDA_KERNELS" = xyes])
    AS_IF([test "x$GRAIL_CUDA_KERNELS" = xyes],
        [GRAIL_DISTCHECK_CUDA="NVCC='$NVCC'"
         dnl one is quicker than all
         AS_IF([test "x$with_cuda_arch" = xdefault || test "x$with_cuda_arch" = xyes],
            [AS_VAR_APPEND([GRAIL_DISTCHECK_CUDA], [" --with-cuda-arch=$grail_newest"])])],
        [GRAIL_DISTCHECK_CUDA=--with-cuda=no])
    AC_SUBST([GRAIL_NVCC_GENCODE])
    AC_SUBST([GRAIL_DISTCHECK_CUDA])
])

AC_DEFUN([GRAIL_FIND_NVCC], [
    AC_MSG_CHECKING([for nvcc])
    AS_CASE([$with_cuda],
        [no], [NVCC=],
        [yes|auto], [
            AS_IF([test -z "$NVCC"], [NVCC=`command -v nvcc 2>/dev/null`])
            AS_IF([test -z "$NVCC" && test -x /usr/local/cuda/bin/nvcc], [NVCC=/usr/local/cuda/bin/nvcc])
            dnl the layout of the wheels nvidia-cuda-nvcc (13) and nvidia-cuda-nvcc-cu12
            AS_IF([test -z "$NVCC"], [
                grail_site=`python3 -c 'import site, sys; print(" ".join(site.getsitepackages() + @<:@site.getusersitepackages()@:>@))' 2>/dev/null`
                for grail_dir in $grail_site; do
                    for grail_try in "$grail_dir"/nvidia/cu1?/bin/nvcc "$grail_dir"/nvidia/cuda_nvcc/bin/nvcc; do
                        AS_IF([test -z "$NVCC" && test -x "$grail_try"], [NVCC=$grail_try])
                    done
                done])],
        [
            AS_IF([test -z "$NVCC"], [
                for grail_try in "$with_cuda"/bin/nvcc "$with_cuda"/nvidia/cu1?/bin/nvcc \
                        "$with_cuda"/lib/python3*/site-packages/nvidia/cu1?/bin/nvcc; do
                    AS_IF([test -z "$NVCC" && test -x "$grail_try"], [NVCC=$grail_try])
                done])])
    AC_MSG_RESULT([${NVCC:-no}])
])

dnl Machine code for the wanted chips that this nvcc knows, PTX of the newest for chips to come and
dnl of the oldest for those between (embedded ones run no machine code of their big relatives).
AC_DEFUN([GRAIL_CUDA_ARCHITECTURES], [
    AC_MSG_CHECKING([for the architectures of the device kernels])
    AS_IF([test "x$with_cuda_arch" = xdefault || test "x$with_cuda_arch" = xyes],
        [grail_wanted="70 75 80 86 89 90 100 103 120"],
        [grail_wanted=`AS_ECHO(["$with_cuda_arch"]) | $SED 's/sm_//g; s/compute_//g; s/@<:@.@:>@//g' | tr ',;' '  '`])
    grail_known=" `$NVCC --list-gpu-code 2>/dev/null | $SED 's/sm_//' | tr '\n' ' '`"
    dnl a CUDA before 11.5 does not answer
    AS_IF([test "x$grail_known" = "x "], [grail_known=" 70 75 80 "])
    GRAIL_CUDA_ARCHS=
    grail_oldest=
    for grail_arch in $grail_wanted; do
        AS_CASE(["$grail_known"],
            [*" $grail_arch "*], [
                AS_VAR_APPEND([GRAIL_NVCC_GENCODE], [" -gencode=arch=compute_$grail_arch,code=sm_$grail_arch"])
                AS_VAR_APPEND([GRAIL_CUDA_ARCHS], [" $grail_arch"])
                AS_IF([test -z "$grail_oldest"], [grail_oldest=$grail_arch])
                grail_newest=$grail_arch],
            [AS_IF([test "x$with_cuda_arch" != xdefault], [
                AC_MSG_RESULT([failed])
                AC_MSG_ERROR([--with-cuda-arch: $NVCC does not know the architecture $grail_arch; it knows$grail_known])])])
    done
    AS_IF([test -z "$GRAIL_CUDA_ARCHS"],
        [AC_MSG_ERROR([--with-cuda-arch=$with_cuda_arch names no architecture; give for example --with-cuda-arch=80,90])])
    AS_IF([test "x$with_cuda_arch" = xdefault && test "$grail_oldest" != "$grail_newest"],
        [AS_VAR_APPEND([GRAIL_NVCC_GENCODE], [" -gencode=arch=compute_$grail_oldest,code=compute_$grail_oldest"])])
    AS_VAR_APPEND([GRAIL_NVCC_GENCODE], [" -gencode=arch=compute_$grail_newest,code=compute_$grail_newest"])
    AC_MSG_RESULT([$GRAIL_CUDA_ARCHS])

    dnl one architecture after the other takes minutes
    AS_IF([$NVCC --help 2>/dev/null | grep -e '--threads' >/dev/null],
        [GRAIL_NVCC_GENCODE="--threads=0$GRAIL_NVCC_GENCODE"])
    AC_MSG_CHECKING([whether $NVCC compiles a kernel])
    cat > conftest.cu <<'_ACEOF'
extern "C" __global__ void conftest(int *p) { *p = threadIdx.x; }
_ACEOF
    AS_ECHO(["$NVCC -fatbin $GRAIL_NVCC_GENCODE $NVCCFLAGS conftest.cu"]) >&AS_MESSAGE_LOG_FD
    AS_IF([$NVCC -fatbin $GRAIL_NVCC_GENCODE $NVCCFLAGS -o conftest.fatbin conftest.cu >&AS_MESSAGE_LOG_FD 2>&1 && test -s conftest.fatbin],
        [GRAIL_CUDA_KERNELS=yes],
        [AC_MSG_WARN([$NVCC does not work (config.log has its output): building without device kernels])])
    AC_MSG_RESULT([$GRAIL_CUDA_KERNELS])
    rm -f conftest.cu conftest.fatbin
    AC_SUBST([GRAIL_CUDA_ARCHS])
])

dnl SPDX-License-Identifier: BSD-3-Clause
dnl Finds the installed Open MPI, its internal headers and its folder of components.

dnl GRAIL_OMPI_PROGRAM(variable, name): beside mpicc first, so that both are of one Open MPI.
AC_DEFUN([GRAIL_OMPI_PROGRAM], [
    AC_MSG_CHECKING([for Open MPI's $2])
    AS_IF([test -z "$$1"], [
        for grail_try in "$grail_mpi_bindir/$2.openmpi" "$grail_mpi_bindir/$2"; do
            AS_IF([test -z "$$1" && test -x "$grail_try"], [$1=$grail_try])
        done])
    AC_MSG_RESULT([${$1:-no}])
])

AC_DEFUN([GRAIL_CHECK_OMPI], [
    AC_ARG_VAR([MPICC], [Open MPI's compiler wrapper])
    AC_ARG_VAR([OMPI_INFO], [the ompi_info of the same Open MPI])
    AC_ARG_VAR([MPIRUN], [the mpirun of the same Open MPI])
    AC_ARG_WITH([mpi],
        [AS_HELP_STRING([--with-mpi=DIR], [the prefix of the Open MPI to extend (default: mpicc of PATH)])],
        [], [with_mpi=yes])
    AC_ARG_WITH([ompi-source],
        [AS_HELP_STRING([--with-ompi-source=DIR],
            [source tree of the same Open MPI release, for internal headers that the installation lacks])],
        [], [with_ompi_source=no])

    AS_CASE([$with_mpi],
        [no], [AC_MSG_ERROR([Grail is two components of Open MPI and cannot be built --without-mpi])],
        [yes], [grail_mpi_path=$PATH],
        [grail_mpi_path=$with_mpi/bin])
    dnl the first wrapper that is Open MPI's: `mpicc` may be another MPI's beside `mpicc.openmpi`
    AC_CACHE_CHECK([for mpicc], [ac_cv_path_MPICC],
        [AC_PATH_PROGS_FEATURE_CHECK([MPICC], [mpicc mpicc.openmpi],
            [AS_CASE([`"$ac_path_MPICC" --showme:version 2>/dev/null`], [*"Open MPI"*],
                [ac_cv_path_MPICC=$ac_path_MPICC ac_path_MPICC_found=:],
                [test -n "$grail_other_mpicc" || grail_other_mpicc=$ac_path_MPICC])],
            [ac_cv_path_MPICC=$grail_other_mpicc], [$grail_mpi_path])])
    MPICC=$ac_cv_path_MPICC
    AS_IF([test -z "$MPICC"],
        [GRAIL_REFUSE([no Open MPI: mpicc was not found],
            [install libopenmpi-dev and openmpi-bin], [--with-mpi=DIR or MPICC=PATH])])
    dnl MPICC may be a bare name
    grail_mpicc_path=`command -v ${MPICC%% *} 2>/dev/null`
    AS_IF([test -z "$grail_mpicc_path"],
        [GRAIL_REFUSE([MPICC=$MPICC does not exist],
            [install libopenmpi-dev and openmpi-bin], [--with-mpi=DIR or MPICC=PATH])])
    grail_mpi_bindir=`AS_DIRNAME(["$grail_mpicc_path"])`

    AC_MSG_CHECKING([whether $MPICC is Open MPI's])
    grail_showme=`$MPICC --showme:version 2>/dev/null`
    AS_CASE([$grail_showme], [*"Open MPI"*], [AC_MSG_RESULT([yes])], [
        AC_MSG_RESULT([no])
        GRAIL_REFUSE([$MPICC belongs to another MPI, and Grail extends Open MPI only],
            [install libopenmpi-dev and openmpi-bin], [--with-mpi=DIR or MPICC=PATH])])

    GRAIL_OMPI_PROGRAM([OMPI_INFO], [ompi_info])
    AS_IF([test -z "$OMPI_INFO"],
        [GRAIL_REFUSE([no ompi_info beside $MPICC], [install openmpi-bin],
            [OMPI_INFO=PATH])])
    GRAIL_OMPI_PROGRAM([MPIRUN], [mpirun])
    AS_IF([test -z "$MPIRUN"],
        [GRAIL_REFUSE([no mpirun beside $MPICC], [install openmpi-bin], [MPIRUN=PATH])])

    AC_MSG_CHECKING([for the version of Open MPI])
    grail_ompi_parsable=`$OMPI_INFO --all --parsable 2>/dev/null`
    GRAIL_OMPI_VERSION=`AS_ECHO(["$grail_ompi_parsable"]) | $SED -n 's/^ompi:version:full://p' | $SED 1q`
    AC_MSG_RESULT([${GRAIL_OMPI_VERSION:-unknown}])
    AS_CASE([$GRAIL_OMPI_VERSION],
        [4.1.*], [],
        ["" ], [GRAIL_REFUSE([$OMPI_INFO does not tell its version], [install openmpi-bin],
            [OMPI_INFO=PATH])],
        [GRAIL_REFUSE([Open MPI $GRAIL_OMPI_VERSION was found, and Grail $PACKAGE_VERSION needs 4.1.x],
            [install libopenmpi-dev of Debian 12 or Ubuntu 24.04], [--with-mpi=DIR of an Open MPI 4.1])])
    AC_DEFINE_UNQUOTED([GRAIL_OMPI_VERSION], ["$GRAIL_OMPI_VERSION"],
        [The Open MPI that this was built for])
    AC_SUBST([GRAIL_OMPI_VERSION])

    GRAIL_OMPI_PREFIX=`AS_ECHO(["$grail_ompi_parsable"]) | $SED -n 's/^path:prefix://p' | $SED 1q`
    GRAIL_OMPI_HEADERS
    GRAIL_OMPI_LIBRARIES
    GRAIL_OMPI_COMPONENTS
    AC_SUBST([GRAIL_OMPI_PREFIX])
])

dnl MPI programs get OMPI_USER_CPPFLAGS; only components get OMPI_CPPFLAGS (internal headers).
AC_DEFUN([GRAIL_OMPI_HEADERS], [
    AC_MSG_CHECKING([for Open MPI's headers])
    OMPI_USER_CPPFLAGS=
    OMPI_CPPFLAGS=
    grail_internal=
    for grail_dir in `$MPICC --showme:incdirs 2>/dev/null`; do
        AS_VAR_APPEND([OMPI_USER_CPPFLAGS], [" -isystem $grail_dir"])
        AS_IF([test -f "$grail_dir/openmpi/opal_config.h"], [grail_internal=$grail_dir/openmpi],
            [test -f "$grail_dir/opal_config.h"], [grail_internal=$grail_dir])
    done
    AC_MSG_RESULT([${grail_internal:-public ones only}])
    OMPI_CPPFLAGS="$OMPI_USER_CPPFLAGS"
    AS_IF([test -n "$grail_internal"], [AS_VAR_APPEND([OMPI_CPPFLAGS], [" -isystem $grail_internal"])])

    AS_IF([test "x$with_ompi_source" != xno], [
        AS_IF([test ! -f "$with_ompi_source/VERSION" || test ! -d "$with_ompi_source/ompi/mca/pml"],
            [AC_MSG_ERROR([--with-ompi-source=$with_ompi_source is not a source tree of Open MPI; give the folder that holds VERSION and ompi/])])
        grail_source_version=`$SED -n 's/^\(major\|minor\|release\)=//p' "$with_ompi_source/VERSION" | tr '\n' '.' | $SED 's/\.$//'`
        AS_IF([test "x$grail_source_version" != "x$GRAIL_OMPI_VERSION"],
            [AC_MSG_ERROR([--with-ompi-source=$with_ompi_source is Open MPI $grail_source_version, but $GRAIL_OMPI_VERSION is installed; give the source of the same release])])
        for grail_dir in . ompi/include opal/include orte/include; do
            AS_VAR_APPEND([OMPI_CPPFLAGS], [" -idirafter $with_ompi_source/$grail_dir"])
        done])

    grail_saved_CPPFLAGS=$CPPFLAGS
    grail_saved_CFLAGS=$CFLAGS
    CPPFLAGS="$CPPFLAGS $OMPI_USER_CPPFLAGS"
    AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <mpi.h>
#if OMPI_MAJOR_VERSION != ${GRAIL_OMPI_VERSION%%.*}
#error mixed
#endif]])], [],
        [GRAIL_REFUSE([mpi.h of Open MPI $GRAIL_OMPI_VERSION was not found or is of another release],
            [install libopenmpi-dev], [--with-mpi=DIR])])

    AC_MSG_CHECKING([for Open MPI's internal headers])
    CPPFLAGS="$grail_saved_CPPFLAGS $OMPI_CPPFLAGS"
    CFLAGS="$CFLAGS -std=gnu11 $GRAIL_MCX16"
    AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#undef PACKAGE_BUGREPORT
#undef PACKAGE_NAME
#undef PACKAGE_STRING
#undef PACKAGE_TARNAME
#undef PACKAGE_URL
#undef PACKAGE_VERSION
#include "ompi_config.h"
#include <stddef.h>
#include "ompi/mca/pml/pml.h"
#include "ompi/mca/pml/base/base.h"
#include "ompi/mca/pml/base/pml_base_bsend.h"
#include "ompi/request/request.h"
#include "ompi/message/message.h"
#include "ompi/communicator/communicator.h"
#include "ompi/proc/proc.h"
#include "ompi/datatype/ompi_datatype.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/patcher/base/base.h"
#include "opal/mca/pmix/pmix.h"
#include "opal/memoryhooks/memory.h"]])],
        [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         GRAIL_REFUSE([the internal headers of Open MPI $GRAIL_OMPI_VERSION are missing or incomplete (config.log names the first)],
            [install libopenmpi-dev (or configure Open MPI with --with-devel-headers)],
            [--with-ompi-source=DIR])])
    CPPFLAGS=$grail_saved_CPPFLAGS
    CFLAGS=$grail_saved_CFLAGS
    AC_SUBST([OMPI_CPPFLAGS])
    AC_SUBST([OMPI_USER_CPPFLAGS])
])

AC_DEFUN([GRAIL_OMPI_LIBRARIES], [
    OMPI_LDFLAGS=
    for grail_dir in `$MPICC --showme:libdirs 2>/dev/null`; do
        AS_VAR_APPEND([OMPI_LDFLAGS], [" -L$grail_dir"])
    done
    dnl an Open MPI outside the loader's path must still be found by what is built here
    AS_CASE([$GRAIL_OMPI_PREFIX], [/usr], [], [
        for grail_dir in `$MPICC --showme:libdirs 2>/dev/null`; do
            AS_VAR_APPEND([OMPI_LDFLAGS], [" -Wl,-rpath,$grail_dir"])
        done])
    grail_saved_LDFLAGS=$LDFLAGS
    grail_saved_LIBS=$LIBS
    LDFLAGS="$LDFLAGS $OMPI_LDFLAGS"
    LIBS="-lmpi -lopen-pal $LIBS"
    AC_MSG_CHECKING([for libmpi and libopen-pal])
    AC_LINK_IFELSE([AC_LANG_SOURCE([[
int MPI_Initialized(int *);
int opal_progress_register(int (*)(void));
int main(void) { int f; return MPI_Initialized(&f) + opal_progress_register(0); }]])],
        [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         GRAIL_REFUSE([libmpi and libopen-pal of $MPICC cannot be linked], [install libopenmpi-dev],
            [--with-mpi=DIR])])
    LDFLAGS=$grail_saved_LDFLAGS
    LIBS=$grail_saved_LIBS
    AC_SUBST([OMPI_LDFLAGS])
])

dnl The folder of the stock components, and the value that mca_base_component_path has without us.
AC_DEFUN([GRAIL_OMPI_COMPONENTS], [
    AC_MSG_CHECKING([for Open MPI's folder of components])
    grail_pkglibdir=`AS_ECHO(["$grail_ompi_parsable"]) | $SED -n 's/^path:pkglibdir://p' | $SED 1q`
    grail_search=`env -u OMPI_MCA_mca_base_component_path -u OMPI_MCA_mca_component_path \
        $OMPI_INFO --all --parsable 2>/dev/null |
        $SED -n 's/^mca:mca:base:param:mca_base_component_path:value:"\{0,1\}\(@<:@^"@:>@*\)"\{0,1\}$/\1/p' | $SED 1q`
    GRAIL_OMPI_COMPONENT_DIR=
    for grail_dir in "$grail_pkglibdir" `AS_ECHO(["$grail_search"]) | tr ':' ' '`; do
        AS_IF([test -z "$GRAIL_OMPI_COMPONENT_DIR"], [
            for grail_file in "$grail_dir"/mca_*.so; do
                AS_IF([test -f "$grail_file"], [GRAIL_OMPI_COMPONENT_DIR=$grail_dir])
            done])
    done
    dnl every stock component may be built into the libraries: then the folder is empty
    AS_IF([test -z "$GRAIL_OMPI_COMPONENT_DIR"], [GRAIL_OMPI_COMPONENT_DIR=$grail_pkglibdir])
    AC_MSG_RESULT([${GRAIL_OMPI_COMPONENT_DIR:-no}])
    AS_IF([test -z "$GRAIL_OMPI_COMPONENT_DIR"],
        [GRAIL_REFUSE([$OMPI_INFO does not tell where its components are], [install openmpi-bin],
            [OMPI_INFO=PATH])])
    AC_SUBST([GRAIL_OMPI_COMPONENT_DIR])
])

AC_DEFUN([GRAIL_COMPONENT_DIR], [
    AC_ARG_WITH([component-dir],
        [AS_HELP_STRING([--with-component-dir=DIR], [install the components into DIR])],
        [], [with_component_dir=default])
    AC_ARG_ENABLE([install-into-ompi],
        [AS_HELP_STRING([--enable-install-into-ompi],
            [install the components into Open MPI's own folder (default: only when the prefix is /usr or Open MPI's; else LIBDIR/grail/openmpi)])],
        [], [enable_install_into_ompi=default])
    grail_prefix=$prefix
    AS_IF([test "x$grail_prefix" = xNONE], [grail_prefix=$ac_default_prefix])
    AS_IF([test "x$enable_install_into_ompi" = xdefault], [
        AS_IF([test "x$grail_prefix" = x/usr || test "x$grail_prefix" = "x$GRAIL_OMPI_PREFIX"],
            [enable_install_into_ompi=yes], [enable_install_into_ompi=no])])
    AS_CASE([$with_component_dir],
        [default|yes|no], [
            AS_IF([test "x$enable_install_into_ompi" = xyes],
                [componentdir=$GRAIL_OMPI_COMPONENT_DIR],
                [componentdir='${libdir}/grail/openmpi'])],
        [/*], [componentdir=$with_component_dir],
        [AC_MSG_ERROR([--with-component-dir needs an absolute path, not $with_component_dir])])
    AC_SUBST([componentdir])
    dnl libtool leaves out /usr/local/lib as a folder of the loader, which knows it only after ldconfig
    AS_CASE([$grail_prefix], [/usr], [GRAIL_MODULE_RPATH=], [GRAIL_MODULE_RPATH='-Wl,-rpath,${libdir}'])
    AC_SUBST([GRAIL_MODULE_RPATH])
    AM_CONDITIONAL([GRAIL_COMPONENTS_ELSEWHERE],
        [test "x$componentdir" != "x$GRAIL_OMPI_COMPONENT_DIR"])
])

dnl SPDX-License-Identifier: BSD-3-Clause
dnl Libraries found by pkg-config. Each missing one ends configure with one line.

dnl GRAIL_DEPENDENCY(name, option, pkg-config module, least version, header, library, function,
dnl                  Debian package, [if missing])
dnl Sets NAME_CFLAGS and NAME_LIBS.
AC_DEFUN([GRAIL_DEPENDENCY], [
    AC_ARG_WITH([$2], [AS_HELP_STRING([--with-$2=DIR], [prefix of $1 (default: asks pkg-config)])],
        [], [AS_VAR_SET([with_]m4_translit([$2], [-], [_]), [yes])])
    AS_VAR_COPY([grail_with], [with_]m4_translit([$2], [-], [_]))
    AC_MSG_CHECKING([for $1]m4_ifval([$4], [ >= $4]))
    grail_pc_path=$PKG_CONFIG_PATH
    AS_CASE([$grail_with], [yes|no], [],
        [grail_pc_path=$grail_with/lib/pkgconfig:$grail_with/lib64/pkgconfig:$PKG_CONFIG_PATH])
    grail_found=no
    grail_seen=`PKG_CONFIG_PATH=$grail_pc_path $PKG_CONFIG --modversion $3 2>/dev/null`
    AS_CASE([$grail_with], [yes|no], [],
        dnl a folder that was named and lacks it must not end in the system's copy
        [AS_CASE([`PKG_CONFIG_PATH=$grail_pc_path $PKG_CONFIG --variable=pcfiledir $3 2>/dev/null`],
            ["$grail_with"/*], [], [grail_seen= grail_with=no])])
    AS_IF([test "x$grail_with" != xno && PKG_CONFIG_PATH=$grail_pc_path $PKG_CONFIG --exists "$3 m4_ifval([$4], [>= $4])" 2>/dev/null], [
        m4_toupper([$2])_CFLAGS=`PKG_CONFIG_PATH=$grail_pc_path $PKG_CONFIG --cflags $3 | $SED 's/-I/-isystem /g'`
        m4_toupper([$2])_LIBS=`PKG_CONFIG_PATH=$grail_pc_path $PKG_CONFIG --libs $3`
        grail_saved_CPPFLAGS=$CPPFLAGS
        grail_saved_LIBS=$LIBS
        CPPFLAGS="$CPPFLAGS $m4_toupper([$2])_CFLAGS"
        LIBS="$m4_toupper([$2])_LIBS $LIBS"
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <$5>]], [[return (void *)&$7 == NULL;]])], [grail_found=yes])
        CPPFLAGS=$grail_saved_CPPFLAGS
        LIBS=$grail_saved_LIBS])
    AS_IF([test "x$grail_found" = xyes], [AC_MSG_RESULT([$grail_seen])], [
        AC_MSG_RESULT([no])
        m4_toupper([$2])_CFLAGS=
        m4_toupper([$2])_LIBS=
        m4_default([$9], [
            grail_why="was not found"
            AS_IF([test "x$grail_with" = xno], [grail_why="is needed, and is not in the folder of --with-$2"],
                [test -n "$grail_seen"], [grail_why="$grail_seen was found but is too old or cannot be linked (config.log)"])
            GRAIL_REFUSE([$1]m4_ifval([$4], [ >= $4])[: $3 $grail_why], [install $8], [--with-$2=DIR])])])
    AC_SUBST(m4_toupper([$2])_CFLAGS)
    AC_SUBST(m4_toupper([$2])_LIBS)
])

AC_DEFUN([GRAIL_CHECK_DEPENDENCIES], [
    AS_IF([test -z "$PKG_CONFIG"],
        [GRAIL_REFUSE([pkg-config was not found], [install pkg-config], [PKG_CONFIG=PATH])])
    GRAIL_DEPENDENCY([UCX], [ucx], [ucx], [1.13], [ucp/api/ucp.h], [ucp], [ucp_get_version],
        [libucx-dev])
    GRAIL_DEPENDENCY([hwloc], [hwloc], [hwloc], [2.0.0], [hwloc.h], [hwloc], [hwloc_topology_load],
        [libhwloc-dev])
    GRAIL_DEPENDENCY([libibverbs], [verbs], [libibverbs], [], [infiniband/verbs.h], [ibverbs],
        [ibv_get_device_list], [libibverbs-dev])
    GRAIL_DEPENDENCY([cmocka], [cmocka], [cmocka], [1.1.5], [cmocka.h], [cmocka],
        [_cmocka_run_group_tests], [libcmocka-dev], [grail_have_cmocka=no])
    AM_CONDITIONAL([HAVE_CMOCKA], [test "x$grail_have_cmocka" != xno])
])

dnl SPDX-License-Identifier: BSD-3-Clause
dnl The version, the platform, the compiler's flags and the options that change them.

dnl One line that ends configure.
dnl GRAIL_REFUSE(what is wrong, what to install, the option of configure)
AC_DEFUN([GRAIL_REFUSE],
    [AC_MSG_ERROR([$1; $2, or use $3])])

AC_DEFUN([GRAIL_VERSION_MACROS], [
    AC_DEFINE_UNQUOTED([GRAIL_VERSION], ["$PACKAGE_VERSION"], [This version of Grail])
    AH_TOP([/* SPDX-License-Identifier: BSD-3-Clause */
/* What configure found. Include it first in every .c file that uses one of its macros. */
#ifndef GRAIL_CONFIG_H
#define GRAIL_CONFIG_H])
    dnl Open MPI's opal_config.h defines the same names. A bare #undef would be rewritten by
    dnl config.status; it works line by line, so a spliced line passes through.
    AH_BOTTOM([/* Left to Open MPI's own configuration header. */
#\
undef PACKAGE_BUGREPORT
#\
undef PACKAGE_NAME
#\
undef PACKAGE_STRING
#\
undef PACKAGE_TARNAME
#\
undef PACKAGE_URL
#\
undef PACKAGE_VERSION

#endif])
])

AC_DEFUN([GRAIL_CHECK_PLATFORM], [
    AC_CANONICAL_HOST
    AS_CASE([$host],
        [x86_64-*-linux-gnu*], [],
        [aarch64-*-linux-gnu*], [],
        [AC_MSG_ERROR([Grail runs on 64-bit x86 and ARM Linux with glibc, not on $host])])
])

dnl GRAIL_APPEND_IF(variable, flag): adds the flag when the compiler takes it.
AC_DEFUN([GRAIL_APPEND_IF], [
    AS_VAR_PUSHDEF([cachevar], [grail_cv_cc_takes_$2])
    AC_CACHE_CHECK([whether $CC takes $2], [cachevar], [
        grail_saved_CFLAGS=$CFLAGS
        CFLAGS="$CFLAGS -Werror $2"
        AC_COMPILE_IFELSE([AC_LANG_PROGRAM()], [AS_VAR_SET([cachevar], [yes])],
            [AS_VAR_SET([cachevar], [no])])
        CFLAGS=$grail_saved_CFLAGS])
    AS_VAR_IF([cachevar], [yes], [AS_VAR_APPEND([$1], [" $2"])])
    AS_VAR_POPDEF([cachevar])
])

AC_DEFUN([GRAIL_CHECK_FLAGS], [
    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror], [a compiler warning is an error (for developers and CI)])])
    AC_ARG_ENABLE([sanitizers],
        [AS_HELP_STRING([--enable-sanitizers], [build with AddressSanitizer and UndefinedBehaviorSanitizer])])

    GRAIL_WARNINGS="-Wall -Wextra"
    GRAIL_APPEND_IF([GRAIL_WARNINGS], [-Wstrict-prototypes])
    GRAIL_APPEND_IF([GRAIL_WARNINGS], [-Wmissing-prototypes])
    GRAIL_APPEND_IF([GRAIL_WARNINGS], [-Wvla])
    AS_IF([test "x$enable_werror" = xyes], [AS_VAR_APPEND([GRAIL_WARNINGS], [" -Werror"])])

    GRAIL_MCX16=
    AS_CASE([$host_cpu], [x86_64], [GRAIL_MCX16=-mcx16])

    GRAIL_SANITIZE= GRAIL_SANITIZER_LIBRARY=
    AS_IF([test "x$enable_sanitizers" = xyes], [
        GRAIL_SANITIZE="-fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined"
        grail_saved_CFLAGS=$CFLAGS
        CFLAGS="$CFLAGS $GRAIL_SANITIZE"
        AC_LINK_IFELSE([AC_LANG_PROGRAM()], [],
            [AC_MSG_ERROR([the compiler cannot link with -fsanitize=address,undefined; install libasan (Debian: libgcc-12-dev or the one of your gcc), or configure without --enable-sanitizers])])
        CFLAGS=$grail_saved_CFLAGS
        GRAIL_SANITIZER_LIBRARY=`$CC -print-file-name=libasan.so`
        AC_DEFINE([GRAIL_SANITIZERS], [1], [Built with AddressSanitizer and UndefinedBehaviorSanitizer])])
    AM_CONDITIONAL([GRAIL_SANITIZERS], [test "x$enable_sanitizers" = xyes])

    AC_SUBST([GRAIL_WARNINGS])
    AC_SUBST([GRAIL_MCX16])
    AC_SUBST([GRAIL_SANITIZE])
    AC_SUBST([GRAIL_SANITIZER_LIBRARY])
])

dnl What `make distcheck` configures with beside what Makefile.am fixes: the compilers, flags and
dnl --with-* of this build, relative folders made absolute. Call it last: it takes the positional
dnl parameters.
AC_DEFUN([GRAIL_DISTCHECK], [
    GRAIL_DISTCHECK_OPTIONS=
    eval "set x $ac_configure_args"
    shift
    for grail_arg
    do
        AS_CASE([$grail_arg],
            [--with-component-dir*|--without-component-dir], [continue],
            [--with-*=/*], [],
            [--with-*=*], [
                grail_dir=`AS_ECHO(["$grail_arg"]) | $SED 's/^@<:@^=@:>@*=//'`
                AS_IF([test -d "$grail_dir"],
                    [grail_arg=`AS_ECHO(["$grail_arg"]) | $SED 's/=.*//'`=`cd "$grail_dir" && pwd`])],
            [--with-*|--without-*|@<:@A-Z@:>@*=*], [],
            [continue])
        grail_arg=`AS_ECHO(["$grail_arg"]) | $SED "s/'/'\\\\\\\\''/g"';s/\\\$/$$/g'`
        AS_VAR_APPEND([GRAIL_DISTCHECK_OPTIONS], [" '$grail_arg'"])
    done
    AC_SUBST([GRAIL_DISTCHECK_OPTIONS])
])
